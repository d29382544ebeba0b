package serverless

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// keyPrefix begins every key of a worker, so that no other kind of key is taken for one.
const keyPrefix = "wk_"

// WorkerKey is what a worker of an endpoint authenticates with: it does the worker
// protocol of that endpoint, in the name of that worker, and nothing else. Endpoint and
// worker can be read in it; the rest is derived from Options.WorkerSecret, so that no key
// is stored and every server with the same secret knows it.
func (s *Service) WorkerKey(endpoint string, id WorkerID) string {
	return keyPrefix + endpoint + "." + string(id) + "." + s.keyMAC(endpoint, id)
}

// CheckWorkerKey reports whose key it is. The time it takes tells nothing about the right
// one.
func (s *Service) CheckWorkerKey(key string) (endpoint string, id WorkerID, ok bool) {
	rest, ok := strings.CutPrefix(key, keyPrefix)
	last := strings.LastIndexByte(rest, '.')
	if !ok || last < 0 {
		return "", "", false
	}
	// An endpoint id has no full stop: the first one ends it, whatever the worker's has.
	endpoint, name, ok := strings.Cut(rest[:last], ".")
	if !ok || endpoint == "" || name == "" {
		return "", "", false
	}
	// Compared as text: decoding would take several texts for one code.
	if !hmac.Equal([]byte(rest[last+1:]), []byte(s.keyMAC(endpoint, WorkerID(name)))) {
		return "", "", false
	}
	return endpoint, WorkerID(name), true
}

func (s *Service) keyMAC(endpoint string, id WorkerID) string {
	h := hmac.New(sha256.New, s.secret)
	h.Write([]byte(endpoint))
	h.Write([]byte{0})
	h.Write([]byte(id))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// workerSecret is secret, or one that ends with the process.
func workerSecret(secret []byte) []byte {
	if len(secret) > 0 {
		return append([]byte(nil), secret...)
	}
	b := make([]byte, 32)
	rand.Read(b) // it never fails
	return b
}

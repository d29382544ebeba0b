package serverless

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"strings"
)

// keyPrefix begins every worker key, so that no other kind of key is mistaken for one.
const keyPrefix = "wk_"

// WorkerSecretName is the name of the secret in a servers.Store from which servers that share
// workers make Options.WorkerSecret.
const WorkerSecretName = "workers"

// WorkerKey returns the key with which a worker of an endpoint authenticates. The key allows
// only the worker protocol of that endpoint, as that worker. It contains the ids of endpoint
// and worker and a MAC that is derived from Options.WorkerSecret. No key is stored: every
// server with the same secret accepts it.
func (s *Service) WorkerKey(endpoint string, id WorkerID) string {
	return keyPrefix + endpoint + "." + string(id) + "." + s.keyMAC(endpoint, id)
}

// CheckWorkerKey returns the endpoint and the worker of a key, and reports whether the key is
// valid. It compares in constant time.
func (s *Service) CheckWorkerKey(key string) (endpoint string, id WorkerID, ok bool) {
	rest, ok := strings.CutPrefix(key, keyPrefix)
	last := strings.LastIndexByte(rest, '.')
	if !ok || last < 0 {
		return "", "", false
	}
	// An endpoint id has no full stop, so the first one ends it. A worker id may have some.
	endpoint, name, ok := strings.Cut(rest[:last], ".")
	if !ok || endpoint == "" || name == "" {
		return "", "", false
	}
	// Compare the text, because several base64 texts decode to the same MAC.
	if !hmac.Equal([]byte(rest[last+1:]), []byte(s.keyMAC(endpoint, WorkerID(name)))) {
		return "", "", false
	}
	return endpoint, WorkerID(name), true
}

func (s *Service) keyMAC(endpoint string, id WorkerID) string {
	h, _ := s.macs.Get().(hash.Hash)
	if h == nil {
		h = hmac.New(sha256.New, s.workerSecret)
	}
	defer s.macs.Put(h)
	h.Reset()
	var room [128]byte
	h.Write(append(append(append(room[:0], endpoint...), 0), id...))
	return base64.RawURLEncoding.EncodeToString(h.Sum(room[:0]))
}

// workerSecret returns a copy of secret, or a random secret if it is empty.
func workerSecret(secret []byte) []byte {
	if len(secret) > 0 {
		return append([]byte(nil), secret...)
	}
	b := make([]byte, 32)
	rand.Read(b) // it never fails
	return b
}

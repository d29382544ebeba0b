package pods

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
)

// keyPrefix begins every key of a pod, so that no other kind of key is mistaken for one.
const keyPrefix = "pk_"

// Variables of a container with the key of its pod, and where it is good (docs/decisions.md 55).
const (
	keyVariable = "RUNPOD_API_KEY"
	urlVariable = "RUNPOD_API_BASE_URL"
)

// keyEnv are the variables of the key of p, without those that the user has chosen.
func (s *Service) keyEnv(p *Pod, c *Config) map[string]string {
	if len(s.keySecret) == 0 || s.keyURL == nil {
		return nil
	}
	url := s.keyURL()
	if url == "" {
		return nil
	}
	env := map[string]string{keyVariable: s.keyOf(p), urlVariable: url}
	for name := range env {
		if _, chosen := c.Env[name]; chosen {
			delete(env, name)
		}
	}
	return env
}

// keyOf returns the key of the container that p is to have: its id, and a MAC that is derived from
// Options.KeySecret. No key is stored. A new container has a new one.
func (s *Service) keyOf(p *Pod) string {
	mac := hmac.New(sha256.New, s.keySecret)
	mac.Write([]byte(p.ID + "\x00" + p.Owner + "\x00"))
	mac.Write(binary.BigEndian.AppendUint64(nil, p.Want.Gen))
	return keyPrefix + p.ID + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// PodOfKey returns the pod whose container has a key, and reports whether the key is good. It is good
// until the pod is terminated or has a new container. It compares in constant time.
func (s *Service) PodOfKey(ctx context.Context, key string) (p *Pod, ok bool, err error) {
	rest, ok := strings.CutPrefix(key, keyPrefix)
	id, _, whole := strings.Cut(rest, ".")
	if !ok || !whole || len(s.keySecret) == 0 {
		return nil, false, nil
	}
	p, err = s.store.Get(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	good := hmac.Equal([]byte(key), []byte(s.keyOf(p))) && p.checkVisible(p.Owner) == nil
	return p, good, nil
}

package disk

import (
	"bytes"

	"github.com/podyard/podyard/internal/seal"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/queue"
)

// KeySize is the length of Options.Key in bytes.
const KeySize = seal.KeySize

// ErrNoKey is returned for a change with a secret if the store has no key.
var ErrNoKey = &problem.Error{Kind: problem.Unavailable, Permanent: true, Detail: "this store has no key to seal secrets with: Options.Key of the store, or secretKey of the configuration, is not set"}

// A sealer encrypts secrets at rest. The zero value has no key.
type sealer struct {
	key []byte
	old [][]byte // decrypt only
}

const sealInfo = "podyard disk secret 1"

// seal encrypts secret and binds it to the name of its record.
func (s sealer) seal(name, secret []byte) ([]byte, error) {
	if s.key == nil {
		return nil, ErrNoKey
	}
	return seal.Seal(s.key, sealInfo, name, secret)
}

// sealExtra is seal for the Extra of a job. One without secrets needs no key.
func (s sealer) sealExtra(name, extra []byte) ([]byte, error) {
	if s.key == nil && queue.PlainExtra(extra) {
		return extra, nil
	}
	return s.seal(name, extra)
}

// openExtra returns what sealExtra was given. The store may have got a key since.
func (s sealer) openExtra(name, stored []byte) ([]byte, error) {
	if queue.PlainExtra(stored) {
		return bytes.Clone(stored), nil
	}
	return s.open(name, stored)
}

func (s sealer) open(name, sealed []byte) ([]byte, error) {
	if s.key == nil {
		return nil, ErrNoKey
	}
	for _, key := range append([][]byte{s.key}, s.old...) {
		if secret, err := seal.Open(key, sealInfo, name, sealed); err == nil {
			return secret, nil
		}
	}
	return nil, damaged(name)
}

package disk

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/serverless/queue"
)

// resealStep is how many bytes of records are encrypted again in one commit.
const resealStep = 4 << 20

// reseal encrypts all secrets of old keys with the key. The result is durable when it returns.
// The known text of the store is replaced last. Until then the next opening repeats the work,
// and can decrypt both kinds of secrets.
func (e *engine) reseal() error {
	e.s.opts.Logger.Info("secrets of the store are sealed with another key", "dir", e.s.dir)
	b := e.db.NewBatch()
	defer func() { _ = b.Close() }()
	for _, kind := range []byte{keyRegistry, keySecret, keyPod, keySchedule, keyBody} {
		err := e.loadEach(kind, func(key, value []byte) error {
			next, err := e.resealed(key, value)
			if err != nil || next == nil {
				return err
			}
			put(b, key, next)
			if b.Len() < resealStep {
				return nil
			}
			return e.applyResealed(b)
		})
		if err != nil {
			return err
		}
	}
	return e.applyResealed(b)
}

func (e *engine) applyResealed(b *pebble.Batch) error {
	if err := e.db.Apply(b, pebble.Sync); err != nil {
		return fmt.Errorf("disk: write secrets that were sealed anew: %w", err)
	}
	b.Reset()
	return nil
}

// resealed returns the record with its secret encrypted with the key, or nil if it has no
// secret.
func (e *engine) resealed(key, value []byte) ([]byte, error) {
	switch {
	case key[0] == keyRegistry:
		r, err1 := decodeRegistry(e, key, value)
		c, err2 := decodeCredential(e.seals, key, value)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return encodeRegistry(e.seals, key, r, c)
	case key[0] == keySecret:
		v, err := wholeSecret(e, key, value)
		if err != nil {
			return nil, err
		}
		return encodeSecret(e.seals, key, v)
	case key[0] == keyPod:
		p, err := decodePod(e, key, value)
		if err != nil || len(p.Injected) == 0 {
			return nil, err
		}
		return encodePod(e.seals, key, p)
	case key[0] == keySchedule:
		v, err := decodeSchedule(e, key, value)
		if err != nil || len(v.Secret) == 0 {
			return nil, err
		}
		return encodeSchedule(e.seals, key, v)
	case isExtras(key):
		var j queue.Job
		if err := decodeExtras(e.seals, key, value, &j); err != nil || j.Extra == nil {
			return nil, err
		}
		return encodeExtras(e.seals, key, &j)
	}
	return nil, nil
}

// isExtras reports whether a key was made by bodyKey with bodyExtras.
func isExtras(key []byte) bool {
	return key[0] == keyBody && len(key) == len(bodyKey(0, bodyExtras)) && key[len(key)-1] == bodyExtras
}

package disk

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/serverless/queue"
)

// resealStep is how many bytes are sealed anew before they are made durable.
const resealStep = 4 << 20

// reseal seals with the key what is sealed with an old one. It is durable when it returns.
// The known text of the store still has the old key then: as long as it does, the next
// opening begins again, and opens both.
func (e *engine) reseal() error {
	e.s.opts.Logger.Info("secrets of the store are sealed with another key", "dir", e.s.dir)
	b := e.db.NewBatch()
	defer func() { _ = b.Close() }()
	for _, kind := range []byte{keyRegistry, keyPod, keyBody} {
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

// resealed is a record whose secret is sealed with the key; nil for one without a secret.
func (e *engine) resealed(key, value []byte) ([]byte, error) {
	switch {
	case key[0] == keyRegistry:
		r, err1 := decodeRegistry(e, key, value)
		c, err2 := decodeCredential(e.seals, key, value)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return encodeRegistry(e.seals, key, r, c)
	case key[0] == keyPod:
		p, err := decodePod(e, key, value)
		if err != nil || len(p.Injected) == 0 {
			return nil, err
		}
		return encodePod(e.seals, key, p)
	case isExtras(key):
		var j queue.Job
		if err := decodeExtras(e.seals, key, value, &j); err != nil || j.Extra == nil {
			return nil, err
		}
		return encodeExtras(e.seals, key, &j)
	}
	return nil, nil
}

// isExtras reports whether a key is one of bodyKey with bodyExtras.
func isExtras(key []byte) bool {
	return key[0] == keyBody && len(key) == len(bodyKey(0, bodyExtras)) && key[len(key)-1] == bodyExtras
}

package disk

import (
	"encoding/json"
	"fmt"

	"github.com/podyard/podyard/pods"
)

// A storedPod is a pod as it is on disk. Injected variables, which may be passwords, are
// encrypted.
type storedPod struct {
	*pods.Pod
	Sealed []byte `json:",omitempty"`
}

func encodePod(seals sealer, key []byte, p *pods.Pod) ([]byte, error) {
	r := storedPod{Pod: p}
	if len(p.Injected) > 0 {
		secret, err := json.Marshal(p.Injected)
		if err != nil {
			return nil, fmt.Errorf("disk: encode pod %q: %w", p.ID, err)
		}
		if r.Sealed, err = seals.seal(key, secret); err != nil {
			return nil, err
		}
		plain := *p
		plain.Injected = nil
		r.Pod = &plain
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("disk: encode pod %q: %w", p.ID, err)
	}
	return b, nil
}

func decodePod(e *engine, key, value []byte) (*pods.Pod, error) {
	r := storedPod{Pod: &pods.Pod{}}
	if err := json.Unmarshal(value, &r); err != nil || r.Sealed == nil {
		return r.Pod, err
	}
	secret, err := e.seals.open(key, r.Sealed)
	if err != nil {
		return nil, err
	}
	return r.Pod, json.Unmarshal(secret, &r.Injected)
}

// withoutSealed returns the record of a pod without its encrypted part, or nil if it has none.
func (e *engine) withoutSealed(value []byte) []byte {
	r := storedPod{Pod: &pods.Pod{}}
	if json.Unmarshal(value, &r) != nil || r.Sealed == nil {
		return nil
	}
	b, err := encodePod(e.seals, nil, r.Pod)
	if err != nil {
		return nil
	}
	return b
}

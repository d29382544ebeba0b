package disk

import (
	"encoding/json"
	"fmt"

	"github.com/podyard/podyard/pods/secrets"
)

// A secret is stored as its length, its JSON, and its encrypted value.
func encodeSecret(seals sealer, key []byte, v *secrets.Secret) ([]byte, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("disk: encode secret %q: %w", v.ID, err)
	}
	sealed, err := seals.seal(key, []byte(v.Value))
	if err != nil {
		return nil, err
	}
	return joinSealed(plain, sealed), nil
}

// decodeSecret returns a secret without its value.
func decodeSecret(e *engine, key, value []byte) (*secrets.Secret, error) {
	plain, _, err := splitSealed(key, value)
	if err != nil {
		return nil, err
	}
	return decodeJSON[secrets.Secret](e, key, plain)
}

// wholeSecret returns a secret with its value.
func wholeSecret(e *engine, key, value []byte) (*secrets.Secret, error) {
	plain, sealed, err := splitSealed(key, value)
	if err != nil {
		return nil, err
	}
	v, err := decodeJSON[secrets.Secret](e, key, plain)
	if err != nil {
		return nil, err
	}
	opened, err := e.seals.open(key, sealed)
	v.Value = secrets.Value(opened)
	return v, err
}

package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// adminKey is the key with full access: the environment's, the one kept in the data
// directory, or a new one, which is kept there.
func adminKey(s *settings) (key string, isNew bool, err error) {
	if s.apiKey != "" {
		return s.apiKey, false, nil
	}
	file := filepath.Join(s.data, "api-key")
	if s.data != "" {
		b, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", false, fmt.Errorf("-data: read the key: %w", err)
		}
		if key := strings.TrimSpace(string(b)); key != "" {
			return key, false, nil
		}
	}
	b := make([]byte, 20)
	rand.Read(b)
	key = "py_" + hex.EncodeToString(b)
	if s.data == "" {
		return key, true, nil
	}
	if err := keep(file, key); err != nil {
		return "", false, fmt.Errorf("-data: keep the key: %w", err)
	}
	return key, true, nil
}

// keep writes a secret as a whole or not at all, for the owner's eyes from the first byte. It
// is on the disk before there is anything that needs it: without the key a store is lost.
func keep(file, secret string) error {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*") // mode 0600
	if err != nil {
		return err
	}
	if _, err = f.WriteString(secret); err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), file)
}

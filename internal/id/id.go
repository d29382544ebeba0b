// Package id creates ids of records: 14 lower-case letters and digits.
package id

import (
	"errors"
	"io"
)

const (
	letters = "0123456789abcdefghijklmnopqrstuvwxyz"
	length  = 14
)

// errNotRandom means that nearly all bytes of a reader are unusable.
var errNotRandom = errors.New("the bytes for an id are not random")

// New returns an id from the bytes of r. Each character is equally likely. Its error is r's
// error, or says that the bytes are not random.
func New(r io.Reader) (string, error) {
	id := make([]byte, 0, length)
	var random [2 * length]byte
	for range attempts {
		if _, err := io.ReadFull(r, random[:]); err != nil {
			return "", err
		}
		for _, b := range random {
			// 252 is the largest multiple of 36 in a byte.
			if b >= 252 {
				continue
			}
			if id = append(id, letters[b%36]); len(id) == length {
				return string(id), nil
			}
		}
	}
	return "", errNotRandom
}

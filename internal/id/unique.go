package id

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

// attempts at an id: with 36^14 of them even the second means that a reader repeats
// itself, or gives what is of no use.
const attempts = 8

// NewUnique hands take new ids made of r until one is not taken, and returns the error of
// take: taken says that somebody else has the id.
func NewUnique(r io.Reader, taken error, take func(id string) error) error {
	for range attempts {
		made, err := New(r)
		if err != nil {
			return fmt.Errorf("make an id: %w", err)
		}
		if err := take(made); !errors.Is(err, taken) {
			return err
		}
	}
	return fmt.Errorf("%d ids were all taken", attempts)
}

// LockedReader is r for many callers at a time. Each of them gets as much as it asks for, or an
// error.
func LockedReader(r io.Reader) io.Reader { return &lockedReader{r: r} }

type lockedReader struct {
	mu sync.Mutex
	r  io.Reader
}

func (s *lockedReader) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return io.ReadFull(s.r, p)
}

package id

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

// attempts is how many ids are tried. With 36^14 ids, even a second attempt means that a
// reader repeats itself.
const attempts = 8

// NewUnique calls take with new ids from r until take returns an error other than taken, or
// nil. It returns that result. taken means that the id is in use. After 8 taken ids it
// returns an error.
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

// LockedReader returns a reader for concurrent use. Each Read fills its buffer or returns
// an error.
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

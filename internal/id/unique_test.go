package id_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/podyard/podyard/internal/id"
)

var errTaken = errors.New("taken")

func TestAnIDThatIsTakenIsReplacedByAnother(t *testing.T) {
	var seen []string
	err := id.NewUnique(rand.NewChaCha8([32]byte{1}), errTaken, func(id string) error {
		if seen = append(seen, id); len(seen) < 3 {
			return errTaken
		}
		return nil
	})
	if err != nil || len(seen) != 3 || seen[0] == seen[1] || seen[1] == seen[2] {
		t.Errorf("Claim = %v after %q, want three ids and no error", err, seen)
	}
}

func TestClaimGivesUp(t *testing.T) {
	broken := errors.New("broken")
	for name, row := range map[string]struct {
		r     io.Reader
		take  error
		want  error // nil: any
		taken int
	}{
		"on another error":                {rand.NewChaCha8([32]byte{1}), broken, broken, 1},
		"on the reader's error":           {iotest.ErrReader(broken), nil, broken, 0},
		"on a reader that repeats itself": {bytes.NewReader(make([]byte, 1<<16)), errTaken, nil, 8},
	} {
		taken := 0
		err := id.NewUnique(row.r, errTaken, func(string) error { taken++; return row.take })
		if err == nil || row.want != nil && !errors.Is(err, row.want) || taken != row.taken {
			t.Errorf("%s: Claim = %v after %d ids, want %v after %d", name, err, taken, row.want, row.taken)
		}
	}
}

func TestASharedReaderGivesNothingTwice(t *testing.T) {
	// Without the lock, a reader that returns single bytes mixes the results of callers.
	source := make([]byte, 256)
	for i := range source {
		source[i] = byte(i)
	}
	r := id.LockedReader(iotest.OneByteReader(bytes.NewReader(source)))
	var all sync.Map
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			var p [16]byte
			if n, err := r.Read(p[:]); n != len(p) || err != nil {
				t.Errorf("Read = %d, %v, want %d", n, err, len(p))
			}
			for i := range p {
				if p[i] != p[0]+byte(i) {
					t.Errorf("a caller got %v, which others have a part of", p)
					break
				}
			}
			if _, twice := all.LoadOrStore(p, true); twice {
				t.Errorf("two callers got %v", p)
			}
		})
	}
	callers.Wait()
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("Read at the end = %v, want EOF", err)
	}
}

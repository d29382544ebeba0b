package double

import (
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
)

// randomSource makes ids. Each purpose has its own source, so that one more pod does not change
// the ids of jobs.
type randomSource struct {
	mu        sync.Mutex
	seed      uint64
	drawn     bool            // seed was used
	usedSeeds map[uint64]bool // seeds that were used before
	sources   map[string]io.Reader
}

func newRandomSource(seed uint64) *randomSource {
	return &randomSource{seed: seed, usedSeeds: map[uint64]bool{}, sources: map[string]io.Reader{}}
}

// source returns the random bytes of a purpose; they change with the seed.
func (c *randomSource) source(purpose string) io.Reader { return purposeReader{c, purpose} }

type purposeReader struct {
	c       *randomSource
	purpose string
}

func (p purposeReader) Read(b []byte) (int, error) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.c.drawn = true
	r := p.c.sources[p.purpose]
	if r == nil {
		r = randomness(p.c.seed, p.purpose)
		p.c.sources[p.purpose] = r
	}
	return r.Read(b)
}

// reseed starts all sources again with another seed. A seed that was used would give ids that
// are taken.
func (c *randomSource) reseed(seed uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drawn {
		c.usedSeeds[c.seed] = true
	}
	if c.usedSeeds[seed] {
		return fmt.Errorf("double: seed %d was in use since the start or the last reset: its ids are taken", seed)
	}
	c.seed, c.drawn, c.sources = seed, false, map[string]io.Reader{}
	return nil
}

// randomness returns the random bytes of a seed for a purpose.
func randomness(seed uint64, purpose string) io.Reader {
	var key [32]byte
	copy(key[8:], purpose)
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	return rand.NewChaCha8(key)
}

func bytesOf(seed uint64, purpose string) []byte {
	b := make([]byte, 32)
	_, _ = randomness(seed, purpose).Read(b) // it never ends or fails
	return b
}

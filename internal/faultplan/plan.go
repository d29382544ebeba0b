// Package faultplan decides, with a seed, which faults happen, how often, and with what
// probability. backend/fault and httpapi/double define faults and cause them; both use this
// package.
package faultplan

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
)

// A Rule is a fault and how often it happens.
type Rule[F any] struct {
	Fault F
	Odds  float64 // probability that it happens; 0 and 1: always
	Skip  int     // number of first opportunities that are skipped
	Times int     // maximum number of times; 0: no limit
	Off   bool    // it does not happen until it is turned on
}

// An Entry is a rule of a plan.
type Entry[F any] struct {
	ID   int // from 1, in the order of Add
	Rule Rule[F]
	Hits int // how often it has happened
	seen int // number of opportunities so far
}

// Spent reports whether the fault has happened Times times.
func (e *Entry[F]) Spent() bool { return e.Rule.Times > 0 && e.Hits >= e.Rule.Times }

// A Plan is a list of rules and a seed. It is safe for concurrent use. With one caller at a
// time, the same seed gives the same faults.
type Plan[F any] struct {
	mu   sync.Mutex
	seed uint64
	rng  *rand.Rand
	list []*Entry[F]
	last int
}

// New returns a plan without rules.
func New[F any](seed uint64) *Plan[F] {
	p := &Plan[F]{}
	p.reseed(seed)
	return p
}

func (p *Plan[F]) reseed(seed uint64) { p.seed, p.rng = seed, rand.New(rand.NewPCG(seed, 0)) }

// Seed returns the seed. Print it when you report a failure.
func (p *Plan[F]) Seed() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seed
}

// Reseed restarts the random decisions with another seed. It keeps the rules.
func (p *Plan[F]) Reseed(seed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reseed(seed)
}

// Reset removes all rules and sets the seed.
func (p *Plan[F]) Reset(seed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list, p.last = nil, 0
	p.reseed(seed)
}

// Add appends a rule and returns its id for Remove.
func (p *Plan[F]) Add(r Rule[F]) (id int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	p.list = append(p.list, &Entry[F]{ID: p.last, Rule: r})
	return p.last
}

// Remove removes a rule. It returns false if no rule has this id.
func (p *Plan[F]) Remove(id int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.list)
	p.list = slices.DeleteFunc(p.list, func(e *Entry[F]) bool { return e.ID == id })
	return len(p.list) < n
}

// Clear removes all rules.
func (p *Plan[F]) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = nil
}

// Turn turns the rules that which selects on or off.
func (p *Plan[F]) Turn(on bool, which func(*F) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.list {
		if which(&e.Rule.Fault) {
			e.Rule.Off = !on
		}
	}
}

// Entries returns the rules in order, including spent ones.
func (p *Plan[F]) Entries() []Entry[F] {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Entry[F], 0, len(p.list))
	for _, e := range p.list {
		list = append(list, *e)
	}
	return list
}

// Draw returns the fault that happens. It checks the rules in order and returns the first
// one that could happen and whose counts and odds allow it. It calls could only with rules
// that are on and not spent. could must not call p.
func (p *Plan[F]) Draw(could func(id int, f *F) bool) (f F, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.list {
		if e.Rule.Off || e.Spent() || !could(e.ID, &e.Rule.Fault) {
			continue
		}
		if e.seen++; e.seen <= e.Rule.Skip || !p.lucky(e.Rule.Odds) {
			continue
		}
		e.Hits++
		return e.Rule.Fault, true
	}
	return f, false
}

// lucky reads a random number only if the odds need one, so that a rule without odds does
// not change the decisions on others.
func (p *Plan[F]) lucky(odds float64) bool {
	return odds <= 0 || odds >= 1 || p.rng.Float64() < odds
}

// Like reports whether text matches a pattern in which '*' matches any characters, also
// none.
func Like(pattern, text string) bool {
	part, pattern, more := strings.Cut(pattern, "*")
	if !more {
		return part == text
	}
	text, ok := strings.CutPrefix(text, part)
	for ok && more {
		if part, pattern, more = strings.Cut(pattern, "*"); more {
			_, text, ok = strings.Cut(text, part)
		}
	}
	return ok && strings.HasSuffix(text, part)
}

// Package faultplan decides which faults happen, how often, and how likely, from a
// seed. backend/fault and httpapi/double define their faults and make them happen; both
// use this engine.
package faultplan

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
)

// A Rule is a fault with how often it happens.
type Rule[F any] struct {
	Fault F
	Odds  float64 // that it happens where it could; 0 and 1: always
	Skip  int     // so often it could happen first, and does not
	Times int     // then it happens at most so often; 0: without end
	Off   bool    // it does not happen until it is turned on
}

// An Entry is a rule of a plan.
type Entry[F any] struct {
	ID   int // from 1 on, in the order in which rules were added
	Rule Rule[F]
	Hits int // how often it has happened
	seen int // how often it could have
}

// Spent reports whether the fault has happened as often as it may.
func (e *Entry[F]) Spent() bool { return e.Rule.Times > 0 && e.Hits >= e.Rule.Times }

// A Plan is rules in order, and the seed that decides. It is safe for concurrent use; with
// one caller at a time the seed replays it.
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

// Seed is what decides about odds. Whoever reports a failure prints it.
func (p *Plan[F]) Seed() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seed
}

// Reseed has odds be decided anew, from another seed. The rules stay.
func (p *Plan[F]) Reseed(seed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reseed(seed)
}

// Reset makes p what New returns.
func (p *Plan[F]) Reset(seed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list, p.last = nil, 0
	p.reseed(seed)
}

// Add appends a rule. Its id is for Remove.
func (p *Plan[F]) Add(r Rule[F]) (id int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	p.list = append(p.list, &Entry[F]{ID: p.last, Rule: r})
	return p.last
}

// Remove removes a rule. It reports false when there is none of this id.
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

// Entries are the rules, those that are spent included, in their order.
func (p *Plan[F]) Entries() []Entry[F] {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Entry[F], 0, len(p.list))
	for _, e := range p.list {
		list = append(list, *e)
	}
	return list
}

// Draw returns the fault that happens: of those that could, in their order, the first whose
// counts and odds let it. could is asked about rules that are on and not spent; it must not
// call p.
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

// lucky draws only where it matters: a rule without odds does not move the others.
func (p *Plan[F]) lucky(odds float64) bool {
	return odds <= 0 || odds >= 1 || p.rng.Float64() < odds
}

// Like compares text with a pattern in which '*' stands for any characters, also none.
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

package jobindex

import (
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// terms are what is set when a job is submitted and never changes.
type terms struct {
	execTimeout, retain time.Duration
	retry               queue.RetryPolicy
	dead                time.Duration
}

func termsOf(s *queue.State) terms { return terms{s.ExecTimeout, s.Retain, s.Retry, s.DeadLetter} }

// termsTable gives numbers to terms, which many jobs share. Number 0 is those of no job.
type termsTable struct {
	number map[terms]uint32
	list   []countedTerms
	free   []uint32
	recent uint32 // of the last call of intern
}

type countedTerms struct {
	terms
	refs int
}

func (p *termsTable) init() {
	p.number, p.list = map[terms]uint32{}, make([]countedTerms, 1)
}

func (p *termsTable) at(i uint32) *terms { return &p.list[i].terms }

// intern returns the number of t and adds a reference.
func (p *termsTable) intern(t terms) uint32 {
	if i := p.recent; i == 0 || p.list[i].refs == 0 || p.list[i].terms != t {
		p.recent = p.find(t)
	}
	p.list[p.recent].refs++
	return p.recent
}

// find returns the number of t, a new one if it has none.
func (p *termsTable) find(t terms) uint32 {
	i, ok := p.number[t]
	if ok {
		return i
	}
	if k := len(p.free); k > 0 {
		i = p.free[k-1]
		p.free = p.free[:k-1]
		p.list[i] = countedTerms{terms: t}
	} else {
		i = uint32(len(p.list))
		p.list = append(p.list, countedTerms{terms: t})
	}
	p.number[t] = i
	return i
}

// release removes a reference. Number 0 has none.
func (p *termsTable) release(i uint32) {
	if i == 0 {
		return
	}
	p.list[i].refs--
	if p.list[i].refs == 0 {
		delete(p.number, p.list[i].terms)
		p.free = append(p.free, i)
	}
}

package jobindex

import "github.com/podyard/podyard/serverless/queue"

// termsTable gives numbers to terms, which many jobs share. Number 0 is those of no job.
type termsTable struct {
	number map[queue.Terms]uint32
	list   []countedTerms
	free   []uint32
	recent uint32 // of the last call of intern
}

type countedTerms struct {
	queue.Terms
	refs int
}

func (p *termsTable) init() {
	p.number, p.list = map[queue.Terms]uint32{}, make([]countedTerms, 1)
}

func (p *termsTable) at(i uint32) *queue.Terms { return &p.list[i].Terms }

// intern returns the number of t and adds a reference.
func (p *termsTable) intern(t *queue.Terms) uint32 {
	if i := p.recent; i == 0 || p.list[i].refs == 0 || p.list[i].Terms != *t {
		p.recent = p.find(*t)
	}
	p.list[p.recent].refs++
	return p.recent
}

// find returns the number of t, a new one if it has none.
func (p *termsTable) find(t queue.Terms) uint32 {
	i, ok := p.number[t]
	if ok {
		return i
	}
	if k := len(p.free); k > 0 {
		i = p.free[k-1]
		p.free = p.free[:k-1]
		p.list[i] = countedTerms{Terms: t}
	} else {
		i = uint32(len(p.list))
		p.list = append(p.list, countedTerms{Terms: t})
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
		delete(p.number, p.list[i].Terms)
		p.free = append(p.free, i)
	}
}

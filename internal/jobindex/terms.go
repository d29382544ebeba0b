package jobindex

import (
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// A failurePolicy is what follows the failure of a job.
type failurePolicy struct {
	retry queue.RetryPolicy
	dead  time.Duration
}

// policies gives numbers to policies, which many jobs share. Number 0 is no policy.
type policies struct {
	number map[failurePolicy]uint32
	list   []policy
	free   []uint32
}

type policy struct {
	value failurePolicy
	refs  int
}

func (p *policies) value(i uint32) failurePolicy {
	if i == 0 {
		return failurePolicy{}
	}
	return p.list[i].value
}

// intern returns the number of v and adds a reference.
func (p *policies) intern(v failurePolicy) uint32 {
	if v == (failurePolicy{}) {
		return 0
	}
	i, ok := p.number[v]
	if !ok {
		i = p.place(v)
		p.number[v] = i
	}
	p.list[i].refs++
	return i
}

func (p *policies) place(v failurePolicy) uint32 {
	if k := len(p.free); k > 0 {
		i := p.free[k-1]
		p.free = p.free[:k-1]
		p.list[i] = policy{value: v}
		return i
	}
	if p.number == nil {
		p.number, p.list = map[failurePolicy]uint32{}, make([]policy, 1)
	}
	p.list = append(p.list, policy{value: v})
	return uint32(len(p.list) - 1)
}

func (p *policies) release(i uint32) {
	if i == 0 {
		return
	}
	p.list[i].refs--
	if p.list[i].refs == 0 {
		delete(p.number, p.list[i].value)
		p.free = append(p.free, i)
	}
}

// replace sets *i to the number of v and releases the old number.
func (p *policies) replace(i *uint32, v failurePolicy) {
	if *i == 0 && v == (failurePolicy{}) || *i != 0 && p.list[*i].value == v {
		return
	}
	old := *i
	*i = p.intern(v)
	p.release(old)
}

package docker

import (
	"context"
	"sync"
)

// A networkTable knows which pods use which network of a Runtime. Networks and firewall rules
// are changed by one goroutine at a time: the end of one pod must not remove a network that the
// start of another has just found.
type networkTable struct {
	sem chan struct{} // holds a token while nobody changes anything

	mu   sync.Mutex
	nets map[string]*networkUse
}

type networkUse struct {
	exists bool // in the engine, as far as we know
	pods   map[string]bool
}

func newNetworkTable() *networkTable {
	b := &networkTable{sem: make(chan struct{}, 1), nets: map[string]*networkUse{}}
	b.sem <- struct{}{}
	return b
}

func (b *networkTable) acquire(ctx context.Context) (done func(), err error) {
	select {
	case <-b.sem:
		return func() { b.sem <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// restore is for a pod of which an earlier server said that it uses a network.
func (b *networkTable) restore(name, podID string) {
	if name == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entry(name).pods[podID] = true
}

// entry is the entry of a network, for who holds mu.
func (b *networkTable) entry(name string) *networkUse {
	u := b.nets[name]
	if u == nil {
		u = &networkUse{pods: map[string]bool{}}
		b.nets[name] = u
	}
	return u
}

// join adds a pod if the network is there, or made just now.
func (b *networkTable) join(name, podID string, made bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.entry(name)
	u.exists = u.exists || made
	if u.exists {
		u.pods[podID] = true
	}
	return u.exists
}

// invalidate has the next pod look whether a network is there: somebody may have removed it.
func (b *networkTable) invalidate(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if u := b.nets[name]; u != nil {
		u.exists = false
	}
}

// leave takes a pod out and says whether it was the last one.
func (b *networkTable) leave(name, podID string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.nets[name]
	if u == nil || !u.pods[podID] {
		return false
	}
	if delete(u.pods, podID); len(u.pods) > 0 {
		return false
	}
	delete(b.nets, name)
	return true
}

func (b *networkTable) used(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nets[name] != nil && len(b.nets[name].pods) > 0
}

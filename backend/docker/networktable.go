package docker

import (
	"context"
	"sync"
)

// A networkTable records which pods use which network of a Runtime. One goroutine at a time
// changes networks and firewall rules. Otherwise the end of one pod could remove a network
// that the start of another has just found.
type networkTable struct {
	sem chan struct{} // has a token while nobody changes networks

	mu   sync.Mutex
	nets map[string]*networkUse
}

type networkUse struct {
	exists bool // in the engine, as far as known
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

// restore records that, according to an earlier server, a pod uses a network.
func (b *networkTable) restore(name, podID string) {
	if name == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entry(name).pods[podID] = true
}

// entry returns the entry of a network. The caller holds mu.
func (b *networkTable) entry(name string) *networkUse {
	u := b.nets[name]
	if u == nil {
		u = &networkUse{pods: map[string]bool{}}
		b.nets[name] = u
	}
	return u
}

// join adds a pod if the network exists or was created just now. It reports whether it
// added the pod.
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

// invalidate makes the next join check that the network exists: somebody may have removed
// it.
func (b *networkTable) invalidate(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if u := b.nets[name]; u != nil {
		u.exists = false
	}
}

// leave removes a pod and reports whether it was the last one.
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

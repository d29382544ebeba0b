package podhost

import "sync"

// A Table has the pods of a runtime by id, until it is closed. P is a pointer. Functions
// passed to its methods run with its lock held: they may queue jobs and change memory, but
// must not call methods of the Table. The zero value is empty. It is safe for concurrent
// use.
type Table[P comparable] struct {
	mu     sync.Mutex
	pods   map[string]P
	closed error // the error of calls after Close
}

// Ensure calls f with a pod. If the pod does not exist, made creates it. After Close it
// returns the error of Close.
func (t *Table[P]) Ensure(id string, made func(id string) P, f func(P) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed != nil {
		return t.closed
	}
	return f(t.get(id, made))
}

// Made returns a pod. If the pod does not exist, made creates it.
func (t *Table[P]) Made(id string, made func(id string) P) P {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.get(id, made)
}

func (t *Table[P]) get(id string, made func(id string) P) P {
	p, ok := t.pods[id]
	if !ok {
		p = made(id)
		if t.pods == nil {
			t.pods = map[string]P{}
		}
		t.pods[id] = p
	}
	return p
}

// Call calls f with a pod, and f queues a job. If the pod does not exist, Call returns
// false. Because of the lock, Close cannot happen between the lookup and the job.
func (t *Table[P]) Call(id string, f func(P)) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed != nil {
		return false, t.closed
	}
	p, ok := t.pods[id]
	if ok {
		f(p)
	}
	return ok, nil
}

// Meet creates the missing pods of ids with made, and calls f with every pod. f may queue jobs:
// because of the lock, Close cannot happen meanwhile. After Close, Meet returns its error.
func (t *Table[P]) Meet(ids []string, made func(id string) P, f func(id string, p P)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed != nil {
		return t.closed
	}
	for _, id := range ids {
		t.get(id, made)
	}
	for id, p := range t.pods {
		f(id, p)
	}
	return nil
}

// Find returns a pod, or the zero value if it does not exist.
func (t *Table[P]) Find(id string) P {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pods[id]
}

// All returns the pods in no particular order.
func (t *Table[P]) All() []P {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]P, 0, len(t.pods))
	for _, p := range t.pods {
		all = append(all, p)
	}
	return all
}

// Forget removes p, unless its id belongs to another pod now.
func (t *Table[P]) Forget(id string, p P) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pods[id] == p {
		delete(t.pods, id)
	}
}

// Close makes Ensure and Call return err from now on. It returns false if the Table was
// closed already.
func (t *Table[P]) Close(err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed != nil {
		return false
	}
	t.closed = err
	return true
}

// Closed returns the error of Close, or nil before Close.
func (t *Table[P]) Closed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

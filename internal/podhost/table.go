package podhost

import "sync"

// A Table is the pods of a runtime by their ids, until it is closed. P is a pointer. The
// functions that are handed to its methods are called with its lock held: they queue jobs
// and change what is in memory, and call no method of the Table. The zero value is empty.
// It is safe for concurrent use.
type Table[P comparable] struct {
	mu     sync.Mutex
	pods   map[string]P
	closed error // what calls answer after Close
}

// Ensure hands a pod to f, which made makes if there is none. After Close it does not.
func (t *Table[P]) Ensure(id string, made func(id string) P, f func(P) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed != nil {
		return t.closed
	}
	return f(t.get(id, made))
}

// Made is a pod, which made makes if there is none.
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

// Call hands a pod to f, which queues a job; without the pod it does nothing and returns
// false. The lock keeps Close from passing between the look and the job.
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

// Meet makes the pods of ids that are not known, unless the Table is closed, and then hands
// every pod to f.
func (t *Table[P]) Meet(ids []string, made func(id string) P, f func(id string, p P)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed == nil {
		for _, id := range ids {
			t.get(id, made)
		}
	}
	for id, p := range t.pods {
		f(id, p)
	}
}

// Find is the pod; the zero value when there is none.
func (t *Table[P]) Find(id string) P {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pods[id]
}

// All are the pods, in no order.
func (t *Table[P]) All() []P {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]P, 0, len(t.pods))
	for _, p := range t.pods {
		all = append(all, p)
	}
	return all
}

// Forget drops p, unless another pod has its id by now.
func (t *Table[P]) Forget(id string, p P) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pods[id] == p {
		delete(t.pods, id)
	}
}

// Close has Ensure and Call answer err from now on. It reports false when that was so
// already.
func (t *Table[P]) Close(err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed != nil {
		return false
	}
	t.closed = err
	return true
}

// Closed is the error of Close; nil before.
func (t *Table[P]) Closed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

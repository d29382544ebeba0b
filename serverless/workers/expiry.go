package workers

// expiry is a heap (container/heap) of workers, ordered by the instant at which they are
// removed.
type expiry []*Worker

func (h expiry) Len() int { return len(h) }

func (h expiry) Less(i, j int) bool { return h[i].record.aliveUntil() < h[j].record.aliveUntil() }

func (h expiry) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].record.setPlace(i)
	h[j].record.setPlace(j)
}

func (h *expiry) Push(x any) {
	w := x.(*Worker)
	w.record.setPlace(len(*h))
	*h = append(*h, w)
}

func (h *expiry) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	w.record.setPlace(-1)
	return w
}

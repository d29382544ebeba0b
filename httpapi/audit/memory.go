package audit

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A Memory keeps the newest records as long as the program lives. It is safe for concurrent
// use.
type Memory struct {
	limit limiter
	most  int

	mu   sync.Mutex
	last time.Time
	kept [2][]Record // refusals and what was dropped of them; changes
}

var _ Trail = (*Memory)(nil)

// NewMemory returns a memory of the newest n refusals and the newest n changes; at least 1.
func NewMemory(n int) *Memory { return &Memory{most: max(n, 1)} }

// Record implements Trail.
func (m *Memory) Record(r Record) {
	if r.Kind == Refusal {
		ok, before := m.limit.admit(r.Time, r.Source)
		for _, b := range before {
			m.add(b)
		}
		if !ok {
			return
		}
	}
	m.add(r)
}

func (m *Memory) add(r Record) {
	_ = line(&r) // as a log would keep it
	m.mu.Lock()
	defer m.mu.Unlock()
	r.Time = after(&m.last, r.Time)
	list := &m.kept[series(r.Kind)]
	if len(*list) == m.most {
		*list = slices.Delete(*list, 0, 1)
	}
	*list = append(*list, r)
}

// Read implements Trail.
func (m *Memory) Read(_ context.Context, q Query) ([]Record, error) {
	for _, r := range m.limit.report() {
		m.add(r)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Record
	for _, kept := range m.kept {
		for i := range kept {
			if q.matches(&kept[i]) {
				list = append(list, kept[i])
			}
		}
	}
	return newest(list, q.Limit), nil
}

// series is where records of a kind are kept.
func series(k Kind) int {
	if k == Change {
		return 1
	}
	return 0
}

// after is t, or an instant right after the last one where t is the same or a little earlier:
// requests overtake each other. A clock that was set back is followed.
func after(last *time.Time, t time.Time) time.Time {
	if d := last.Sub(t); d >= 0 && d < time.Second || t.IsZero() {
		t = last.Add(time.Nanosecond)
	}
	*last = t
	return t
}

// newest are the last n, newest first.
func newest(list []Record, n int) []Record {
	slices.SortStableFunc(list, func(a, b Record) int { return b.Time.Compare(a.Time) })
	return list[:min(len(list), max(n, 1))]
}

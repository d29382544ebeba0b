package audit

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Refusals that are kept in a minute. Whoever is refused more often is counted.
const (
	PerAddress = 10  // of one address, or of a network of 64 bits of IPv6
	PerMinute  = 300 // of all addresses together
)

const window = time.Minute

// A limiter bounds the refusals that are kept.
type limiter struct {
	mu    sync.Mutex
	began time.Time
	all   int
	rest  int               // dropped of addresses that have no count
	count map[string]*tally // by address: at most PerMinute of them
}

type tally struct{ kept, dropped int }

// admit reports whether a refusal may be kept. before are the records that count what the
// window before has dropped.
func (l *limiter) admit(now time.Time, source string) (ok bool, before []Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.began) >= window || now.Before(l.began) {
		before = l.flush(now)
		l.began = now
	}
	name := network(source)
	t := l.count[name]
	switch {
	case t == nil && l.all >= PerMinute:
		l.rest++
		return false, before
	case t == nil:
		t = &tally{}
		l.count[name] = t
	}
	if t.kept >= PerAddress || l.all >= PerMinute {
		t.dropped++
		return false, before
	}
	t.kept++
	l.all++
	return true, before
}

// end is the records of what was dropped so far.
func (l *limiter) end(now time.Time) []Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flush(now)
}

// report returns records of what was dropped and not reported yet. The window goes on.
func (l *limiter) report() []Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped(time.Time{})
}

// flush is report at the end of a window.
func (l *limiter) flush(now time.Time) []Record {
	list := l.dropped(now)
	l.all, l.count = 0, map[string]*tally{}
	return list
}

func (l *limiter) dropped(now time.Time) (list []Record) {
	for name, t := range l.count {
		if t.dropped > 0 {
			list = append(list, Record{Time: now, Kind: Dropped, Source: name, Dropped: t.dropped})
			t.dropped = 0
		}
	}
	slices.SortFunc(list, func(a, b Record) int { return strings.Compare(a.Source, b.Source) })
	if l.rest > 0 {
		list = append(list, Record{Time: now, Kind: Dropped, Dropped: l.rest})
	}
	l.rest = 0
	return list
}

// network is what an address counts as: IPv6 hosts have a network of 64 bits each.
func network(source string) string {
	a, err := netip.ParseAddr(source)
	if err != nil || a.Unmap().Is4() {
		return source
	}
	p, err := a.WithZone("").Prefix(64)
	if err != nil {
		return source
	}
	return p.String()
}

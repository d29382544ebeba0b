package console

import (
	"math"
	"slices"
)

// minutes is how many minutes of latency are kept: one sample of counts in latencyEvery.
const (
	minutes      = 60
	latencyEvery = sampleCount / minutes
)

// A spread is the P50 and P90 of what a minute had, in milliseconds; -1: it had nothing.
type spread struct{ p50, p90 int32 }

// A latency has how long jobs of an endpoint waited and ran, minute by minute. It takes at most 2 * 60 * 8
// bytes, and the counts of Options.JobTimes.
type latency struct {
	waited, ran         [minutes]spread
	n                   int      // minutes that were measured
	lastWaited, lastRan []uint64 // counts up to now; nil: none were read
}

// add adds the minute since the last counts.
func (l *latency) add(ends []int64, waited, ran []uint64) {
	if l.lastWaited != nil {
		l.waited[l.n%minutes], l.ran[l.n%minutes] = spreadOf(ends, l.lastWaited, waited), spreadOf(ends, l.lastRan, ran)
		l.n++
	}
	l.lastWaited, l.lastRan = waited, ran
}

// spreadOf returns the percentiles of what was counted between two instants. counts[i] is of times up to
// ends[i], in ascending order, and the last one of all longer ones.
func spreadOf(ends []int64, before, counts []uint64) spread {
	if len(before) != len(counts) || len(counts) != len(ends)+1 {
		return spread{-1, -1}
	}
	each, sum := make([]uint64, len(counts)), uint64(0)
	for i, n := range counts {
		each[i] = n - min(before[i], n)
		sum += each[i]
	}
	if sum == 0 {
		return spread{-1, -1}
	}
	at := func(part uint64) int32 {
		rank, seen := (part*sum+99)/100, uint64(0)
		i := slices.IndexFunc(each, func(n uint64) bool { seen += n; return seen >= rank })
		return int32(min(ends[min(i, len(ends)-1)], math.MaxInt32))
	}
	return spread{at(50), at(90)}
}

// A latencyBody has how long jobs took, oldest minute first, in milliseconds; null: no job.
type latencyBody struct {
	Every  int         `json:"every"` // seconds
	Waited spreadsBody `json:"waited"`
	Ran    spreadsBody `json:"ran"`
}

type spreadsBody struct {
	P50 []*int32 `json:"p50"`
	P90 []*int32 `json:"p90"`
}

// body returns nil before the first minute.
func (l *latency) body() *latencyBody {
	if l.n == 0 {
		return nil
	}
	b := &latencyBody{Every: int(sampleEvery.Seconds()) * latencyEvery}
	for i := max(l.n-minutes, 0); i < l.n; i++ {
		b.Waited.add(l.waited[i%minutes])
		b.Ran.add(l.ran[i%minutes])
	}
	return b
}

func (b *spreadsBody) add(s spread) {
	if s.p50 < 0 {
		b.P50, b.P90 = append(b.P50, nil), append(b.P90, nil)
		return
	}
	b.P50, b.P90 = append(b.P50, &s.p50), append(b.P90, &s.p90)
}

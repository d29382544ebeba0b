package prometheus

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/podyard/podyard/serverless/queue"
)

// written returns what a scraper gets, without the instants.
func written(t *testing.T, m prometheus.Metric) *dto.Histogram {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	h := out.GetHistogram()
	h.CreatedTimestamp, h.Exemplars = nil, nil
	for _, b := range h.GetBucket() {
		if b.GetExemplar() != nil {
			b.Exemplar.Timestamp = nil
		}
	}
	// Sums of fractions depend on the order in which they were added.
	*h.SampleSum = float64(int64(h.GetSampleSum()*1000 + .5))
	return h
}

func text(t *testing.T, h *dto.Histogram) string {
	t.Helper()
	for _, b := range h.GetBucket() {
		if math.IsInf(b.GetUpperBound(), 1) { // JSON has none
			*b.UpperBound = -1
		}
	}
	b, err := json.MarshalIndent(h, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Numbers at and beside every bound, and more and more random ones, so that native buckets become coarser
// more than once.
func TestATallyShowsTheBucketsThatAHistogramOfTheClientLibraryHas(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	r := rand.New(rand.NewPCG(1, 2))
	for name, x := range map[string]struct {
		unit float64
		opts prometheus.HistogramOpts
	}{
		"times": {1000, buckets("x", "help", jobSeconds)},
		"sizes": {1, prometheus.HistogramOpts{Name: prefix + "x", Help: "help", Buckets: bodyBytes}},
	} {
		t.Run(name, func(t *testing.T) {
			native := x.opts.NativeHistogramBucketFactor != 0
			want, got := prometheus.NewHistogram(x.opts), newTally(newLayout(x.unit, x.opts.Buckets, native))
			observe := func(v int64) {
				seconds := float64(v) / x.unit
				if v%3 == 0 {
					got.addSpan(1000, queue.Instant(1000+v), parent)
					want.(prometheus.ExemplarObserver).ObserveWithExemplar(seconds, prometheus.Labels{"trace_id": parent[3:35]})
					return
				}
				got.add(v)
				want.Observe(seconds)
			}
			compare := func() {
				t.Helper()
				if diff := cmp.Diff(text(t, written(t, want)), text(t, written(t, got.take().metric(want.Desc(), time.Now())))); diff != "" {
					t.Fatalf("-client library +tally:\n%s", diff)
				}
			}
			compare()
			for _, end := range got.ends {
				if end < 10_000 {
					observe(end)
				}
			}
			compare()
			for limit := int64(1); limit < 1<<38; limit *= 4 {
				for range 50 {
					observe(r.Int64N(limit))
				}
				compare()
			}
			for _, b := range x.opts.Buckets {
				for v := int64(b*x.unit) - 1; v <= int64(b*x.unit)+1; v++ {
					observe(v)
				}
			}
			compare()
		})
	}
}

func TestATimeThatRunsBackwardsCountsAsNone(t *testing.T) {
	x := newTally(newLayout(1000, jobSeconds, true))
	x.addSpan(2000, 1000, "")
	if h := written(t, x.take().metric(desc("x", "help"), time.Now())); h.GetZeroCount() != 1 || h.GetSampleSum() != 0 {
		t.Errorf("the histogram is %v", h)
	}
}

func TestATimeOverEveryBoundIsCounted(t *testing.T) {
	x := newTally(newLayout(1000, jobSeconds, true))
	x.addSpan(1, 1<<55, "")
	if h := written(t, x.take().metric(desc("x", "help"), time.Now())); h.GetSampleCount() != 1 || len(h.GetPositiveDelta()) != 1 {
		t.Errorf("the histogram is %v", h)
	}
}

// A cell has room for half a million numbers, and for a sum of 2^43.
func TestATallyLosesNothingWhenCellsAreFull(t *testing.T) {
	const workers, each = 8, 300_000
	x := newTally(newLayout(1, bodyBytes, false))
	var count, sum atomic.Int64
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			v := []int64{0, 1, 255, 9 << 20, maxInCell, maxInCell + 1, 1 << 40, 2}[w]
			for range each {
				x.add(v)
			}
			count.Add(each)
			sum.Add(v * each)
		})
	}
	stop, scraped := make(chan struct{}), make(chan error)
	go func() {
		var last uint64
		for {
			c := x.take()
			if c.total < last {
				scraped <- fmt.Errorf("a scrape has %d after one that has %d", c.total, last)
				return
			}
			last = c.total
			select {
			case <-stop:
				scraped <- nil
				return
			default:
				runtime.Gosched()
			}
		}
	}()
	all.Wait()
	close(stop)
	if err := <-scraped; err != nil {
		t.Error(err)
	}
	if c := x.take(); int64(c.total) != count.Load() || c.sum != sum.Load() {
		t.Errorf("the tally has %d numbers with the sum %d, want %d with %d", c.total, c.sum, count.Load(), sum.Load())
	}
}

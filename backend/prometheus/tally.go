package prometheus

import (
	"maps"
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/podyard/podyard/serverless/queue"
)

const (
	// schema is the resolution of native histograms: 8 buckets for each factor of 2.
	schema = 3
	// maxNative is the most native buckets that a histogram shows. One with more has coarser ones.
	maxNative = 100
	// Native buckets are from 2^firstOctave, below a millisecond, to 2^lastOctave seconds, which is 34
	// years: longer times share one bucket.
	firstOctave, lastOctave = -16, 30
	// zeroThreshold is the default of the client library.
	zeroThreshold = prometheus.DefNativeHistogramZeroThreshold
)

// magnitudes is how many values magnitude has.
const magnitudes = 61 * 8

// magnitude returns which of at least 8 equal parts of an octave v is in. It grows with v, which is not
// negative.
func magnitude(v int64) int {
	if v < 8 {
		return int(v)
	}
	n := bits.Len64(uint64(v)) - 4
	return (n+1)<<3 | int(v>>n)&7
}

// A layout says which cell of a tally counts a whole number. Each cell is within one bucket and one native
// bucket of the histogram that is made of the tally, so that an event changes one counter for both.
type layout struct {
	unit   float64            // whole numbers for 1 in the histogram
	ends   []int64            // the greatest number of each cell but the last, ascending
	first  [magnitudes]uint16 // the first cell that numbers of a magnitude may be in
	bounds []float64          // of the histogram
	bucket []int              // of each cell
	native []int              // of each cell, or nil; the first cell has the numbers up to 0
}

// newLayout returns the cells for whole numbers that a histogram shows divided by unit.
func newLayout(unit float64, bounds []float64, native bool) *layout {
	l := &layout{unit: unit, bounds: bounds}
	for _, b := range bounds {
		l.ends = append(l.ends, int64(math.Round(b*unit)))
	}
	var keys []int64 // the greatest number of each native bucket that has one
	if native {
		for key := firstOctave << schema; key <= lastOctave<<schema; key++ {
			keys = append(keys, int64(nativeEnd(key)*unit))
		}
		l.ends = append(append(l.ends, 0), keys...)
	}
	slices.Sort(l.ends)
	l.ends = slices.Compact(l.ends)
	for i := range len(l.ends) + 1 {
		end := int64(math.MaxInt64)
		if i < len(l.ends) {
			end = l.ends[i]
		}
		bucket, _ := slices.BinarySearch(bounds, float64(end)/unit)
		l.bucket = append(l.bucket, bucket)
		if native {
			key, _ := slices.BinarySearch(keys, end)
			l.native = append(l.native, key+firstOctave<<schema)
		}
	}
	for m, cell := 0, uint16(0); m < magnitudes; m++ {
		for int(cell) < len(l.ends) && magnitude(l.ends[cell]) < m {
			cell++
		}
		l.first[m] = cell
	}
	return l
}

// nativeEnd returns the upper bound of a native bucket.
func nativeEnd(key int) float64 {
	octave := key >> schema
	return math.Ldexp(math.Exp2(float64(key-octave<<schema)/(1<<schema)), octave)
}

// cell returns the cell of a number.
func (l *layout) cell(v int64) int {
	if uint64(v) < 8 { // it has a magnitude of its own
		return int(l.first[v])
	}
	i := int(l.first[magnitude(v)])
	for i < len(l.ends) && v > l.ends[i] {
		i++
	}
	return i
}

// A tally counts whole numbers for a histogram. An event costs one addition: a cell has both the count and
// the sum of its numbers. Buckets, counts and sums of all are computed at a scrape.
type tally struct {
	*layout
	cells  []atomic.Uint64                       // count<<sumBits | sum, of what kept lacks
	traces []atomic.Pointer[prometheus.Exemplar] // of the buckets: their last exemplars

	mu   sync.Mutex // guards kept, and that what a cell had is in one of the two
	kept *census    // what was in cells that were half full, and the numbers that are too great for a cell; nil: none
}

const (
	// sumBits are the bits of a cell that are its sum. The others are its count.
	sumBits = 44
	one     = 1 << sumBits
	// halfFull are the bits of a cell of which one is set when its count or its sum is half of the most.
	halfFull = 1<<63 | 1<<(sumBits-1)
	// maxInCell is the greatest number that a cell gets. A cell that is half full has room for 100,000 more
	// of these, which many goroutines may add before one of them has emptied it.
	maxInCell = 1<<26 - 1
)

func newTally(l *layout) *tally {
	return &tally{layout: l, cells: make([]atomic.Uint64, len(l.bucket)), traces: make([]atomic.Pointer[prometheus.Exemplar], len(l.bounds)+1)}
}

// add counts a number that is not negative, and returns its cell.
func (t *tally) add(v int64) int {
	i := t.cell(v)
	if v > maxInCell {
		t.keep(i, 1, v)
	} else if t.cells[i].Add(one|uint64(v))&halfFull != 0 {
		t.keep(i, 0, 0)
	}
	return i
}

// keep empties a cell, and adds what it had and some numbers to what is kept.
func (t *tally) keep(i int, count uint64, sum int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept == nil {
		t.kept = newCensus(t.layout)
	}
	t.kept.add(i, t.cells[i].Swap(0))
	t.kept.counts[i] += count
	t.kept.total += count
	t.kept.sum += sum
}

// addSpan counts the milliseconds from an instant to another, with the trace as their exemplar if the trace
// is sampled.
func (t *tally) addSpan(from, to queue.Instant, parent string) {
	v := max(int64(to-from), 0)
	if i := t.add(v); parent != "" {
		t.sample(i, v, to, parent)
	}
}

// sample keeps a number as the exemplar of its bucket, if the trace is sampled.
func (t *tally) sample(i int, v int64, at queue.Instant, parent string) {
	if id := sampledTrace(parent); id != "" {
		t.traces[t.bucket[i]].Store(&prometheus.Exemplar{Value: float64(v) / t.unit, Labels: prometheus.Labels{"trace_id": id}, Timestamp: at.Time()})
	}
}

// A census is what tallies of one layout had counted at an instant.
type census struct {
	*layout
	sum    int64
	total  uint64
	counts []uint64
	traces []prometheus.Exemplar
}

func newCensus(l *layout) *census { return &census{layout: l, counts: make([]uint64, len(l.bucket))} }

// take returns what t has counted.
func (t *tally) take() *census {
	c := newCensus(t.layout)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept != nil {
		c.merge(t.kept)
	}
	for i := range t.cells {
		c.add(i, t.cells[i].Load())
	}
	for i := range t.traces {
		if x := t.traces[i].Load(); x != nil {
			c.traces = append(c.traces, *x)
		}
	}
	return c
}

// add adds what a cell has.
func (c *census) add(i int, cell uint64) {
	c.counts[i] += cell >> sumBits
	c.total += cell >> sumBits
	c.sum += int64(cell % one)
}

// merge adds the numbers of another census.
func (c *census) merge(x *census) {
	c.sum += x.sum
	c.total += x.total
	for i, n := range x.counts {
		c.counts[i] += n
	}
}

// metric returns the histogram.
func (c *census) metric(d *prometheus.Desc, began time.Time, labels ...string) prometheus.Metric {
	sum, buckets := float64(c.sum)/c.unit, c.buckets()
	var m prometheus.Metric
	if c.native == nil {
		m = prometheus.MustNewConstHistogramWithCreatedTimestamp(d, c.total, sum, buckets, began, labels...)
	} else {
		zero, keys, resolution := c.nativeBuckets()
		m = bucketed{
			Metric:  prometheus.MustNewConstNativeHistogram(d, c.total, sum, keys, nil, zero, resolution, zeroThreshold, began, labels...),
			buckets: buckets,
		}
	}
	if len(c.traces) == 0 {
		return m
	}
	return prometheus.MustNewMetricWithExemplars(m, c.traces...)
}

// buckets returns how many numbers are at most as great as each bound.
func (c *census) buckets() map[float64]uint64 {
	per, below, out := make([]uint64, len(c.bounds)+1), uint64(0), make(map[float64]uint64, len(c.bounds))
	for i, n := range c.counts {
		per[c.bucket[i]] += n
	}
	for i, bound := range c.bounds {
		below += per[i]
		out[bound] = below
	}
	return out
}

// nativeBuckets returns the zeros, the native buckets, and the resolution at which these are few enough.
func (c *census) nativeBuckets() (zero uint64, keys map[int]int64, resolution int32) {
	keys = map[int]int64{}
	for i, n := range c.counts[1:] {
		if n > 0 {
			keys[c.native[i+1]] += int64(n)
		}
	}
	for resolution = schema; len(keys) > maxNative; resolution-- {
		half := map[int]int64{}
		for key, n := range keys {
			half[(key+1)>>1] += n
		}
		keys = half
	}
	return c.counts[0], keys, resolution
}

// bucketed is a native histogram that has the other buckets, too.
type bucketed struct {
	prometheus.Metric
	buckets map[float64]uint64
}

// Write implements prometheus.Metric.
func (b bucketed) Write(out *dto.Metric) error {
	if err := b.Metric.Write(out); err != nil {
		return err
	}
	h := out.GetHistogram()
	h.Bucket, h.Exemplars = nil, nil
	for _, bound := range slices.Sorted(maps.Keys(b.buckets)) {
		n := b.buckets[bound]
		h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: &bound, CumulativeCount: &n})
	}
	return nil
}

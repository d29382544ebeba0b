// Package billing reports what was used and what it costs, in buckets of time.
//
// Pods and volumes keep in their own records what they use and since when, and a report reads
// it from there. Workers have no record of their own. So the program passes the present workers
// to [Service.Observe], which keeps in the [Store] until when each of them was there. Usage
// that has ended is in the store too. So a restart loses nothing and counts nothing twice. A
// worker that ended during a restart counts up to the last time that it was observed.
//
// Where the interface is silent, we chose: a stopped pod is billed for its persistent mount, as
// on the hosted service, and not for the disk of its container; buckets begin in UTC, and weeks
// on Monday; a bucket without usage has no record; a month of a price has 730 hours; a window
// has at most [MaxBuckets] buckets.
package billing

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/ratelimit/budget"
)

// A Store keeps usages: those that have ended, and open ones. It is safe for concurrent use.
// Nothing is visible before it is as durable as the store makes it.
type Store interface {
	// Record adds usages. A usage replaces one with the same Kind, ID, Part and From. After an
	// error some of the usages may be kept; the caller repeats the call.
	Record(ctx context.Context, uses []pods.Usage) error
	// Usage returns the usages of owner that overlap [from, to), in any order.
	Usage(ctx context.Context, owner string, from, to time.Time) ([]pods.Usage, error)
	// Open returns the usages of a kind that are Open, of all owners, in any order.
	Open(ctx context.Context, kind pods.UsageKind) ([]pods.Usage, error)
	// Expire deletes at most limit usages of any owner that are not Open and ended before an
	// instant, in any order, and returns how many it deleted: fewer than limit only if no more are
	// left. Several servers may call it at once.
	Expire(ctx context.Context, before time.Time, limit int) (int, error)
}

// A UsageSource knows what is in use now. pods.Service and volumes.Service are sources.
type UsageSource interface {
	// Usage returns what owner uses now, with a zero To, and past usages that the meter may not
	// have yet.
	Usage(ctx context.Context, owner string) ([]pods.Usage, error)
}

// A Clock has the time.
type Clock interface {
	Now() time.Time
}

// A Service keeps usages and makes reports. It is safe for concurrent use.
type Service struct {
	store    Store
	clock    Clock
	reporter string // empty: no other program uses the store

	mu   sync.Mutex
	open map[pods.UsageKind]watch
}

var _ pods.Meter = (*Service)(nil)

// New returns a service over store. A nil c is the system's clock.
func New(store Store, c Clock) *Service {
	if c == nil {
		c = clock.System{}
	}
	return &Service{store: store, clock: c, open: make(map[pods.UsageKind]watch)}
}

// NewShared is New for one of several servers that use store, each with a reporter of its own
// that no earlier one had: the id of the server. None ends a usage that another one observes
// (docs/servers.md).
func NewShared(store Store, c Clock, reporter string) *Service {
	s := New(store, c)
	s.reporter = reporter
	return s
}

// Record keeps usages that have ended.
func (s *Service) Record(ctx context.Context, uses []pods.Usage) error {
	if err := s.store.Record(ctx, uses); err != nil {
		return fmt.Errorf("billing: record: %w", err)
	}
	return nil
}

// Retention is how long usages are kept after their end, unless a program says otherwise.
const Retention = 400 * 24 * time.Hour

// expireStep is how many usages one call of the store deletes.
const expireStep = 1000

// Expire deletes the usages that ended more than keep ago. Reports no longer have them.
func (s *Service) Expire(ctx context.Context, keep time.Duration) error {
	before := s.clock.Now().Add(-keep)
	for {
		n, err := s.store.Expire(ctx, before, expireStep)
		if err != nil {
			return fmt.Errorf("billing: delete what is no longer kept: %w", err)
		}
		if n < expireStep {
			return nil
		}
	}
}

// Amounts are USD.
type Amounts struct {
	GPU, CPU, Disk            float64
	Standard, HighPerformance float64
}

// Add returns the sum of a and b.
func (a Amounts) Add(b Amounts) Amounts {
	return Amounts{a.GPU + b.GPU, a.CPU + b.CPU, a.Disk + b.Disk, a.Standard + b.Standard, a.HighPerformance + b.HighPerformance}
}

// A Record is what one thing cost in one bucket.
type Record struct {
	Start, End time.Time
	Kind       pods.UsageKind
	ID         string
	Amounts    Amounts
}

// A Report has the records of a window, sorted by bucket, kind and id.
type Report struct {
	Start, End time.Time
	Size       BucketSize
	Records    []Record
}

// Report adds up what owner used in the window of q. sources know what is in use now.
func (s *Service) Report(ctx context.Context, owner string, q Query, sources ...UsageSource) (Report, error) {
	now := s.clock.Now().UTC()
	r, err := q.window(now)
	if err != nil {
		return r, err
	}
	uses, err := s.usage(ctx, owner, r.Start, r.End, sources)
	if err != nil {
		return r, err
	}
	sums := make(map[recordKey]Amounts)
	for _, u := range uses {
		if (q.Kind == "" || q.Kind == u.Kind) && (q.ID == "" || q.ID == u.ID) {
			r.spread(sums, u, now)
		}
	}
	for k, a := range sums {
		r.Records = append(r.Records, Record{k.start, q.Size.next(k.start), k.kind, k.id, a})
	}
	slices.SortFunc(r.Records, func(a, b Record) int {
		return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
	})
	return r, nil
}

// usage joins present and past usages. A usage in both counts once, as the sources have it,
// because they know whether it has ended.
func (s *Service) usage(ctx context.Context, owner string, from, to time.Time, sources []UsageSource) ([]pods.Usage, error) {
	type name struct {
		kind     pods.UsageKind
		id, part string
		from     int64
	}
	found := make(map[name]pods.Usage)
	add := func(list []pods.Usage) {
		for _, u := range list {
			n := name{u.Kind, u.ID, u.Part, u.From.UnixNano()}
			if _, ok := found[n]; !ok {
				found[n] = u
			}
		}
	}
	for _, src := range sources { // before the store is read: a usage that ends meanwhile is in the store then
		list, err := src.Usage(ctx, owner)
		if err != nil {
			return nil, fmt.Errorf("billing: ask what is used: %w", err)
		}
		add(list)
	}
	add(s.watched(owner))
	list, err := s.store.Usage(ctx, owner, from, to)
	if err != nil {
		return nil, fmt.Errorf("billing: look up what was used: %w", err)
	}
	add(list)
	return slices.Collect(maps.Values(found)), nil
}

type recordKey struct {
	start time.Time
	kind  pods.UsageKind
	id    string
}

// spread adds the costs of u to the buckets that it overlaps.
func (r *Report) spread(sums map[recordKey]Amounts, u pods.Usage, now time.Time) {
	from, to := u.From.UTC(), u.To.UTC()
	if u.To.IsZero() {
		to = now
	}
	if from.Before(r.Start) {
		from = r.Start
	}
	if to.After(r.End) {
		to = r.End
	}
	for from.Before(to) {
		start := r.Size.floor(from)
		end := r.Size.next(start)
		if end.After(to) {
			end = to
		}
		h := end.Sub(from).Hours()
		k := recordKey{start, u.Kind, u.ID}
		sums[k] = sums[k].Add(Amounts{h * u.GPU, h * u.CPU, h * u.Disk, h * u.Standard, h * u.HighPerformance})
		from = end
	}
}

// Round rounds a to a billionth of a dollar, because sums of binary fractions are not exact.
func (a Amounts) Round() Amounts {
	round := func(x float64) float64 { return math.Round(x*1e9) / 1e9 }
	return Amounts{round(a.GPU), round(a.CPU), round(a.Disk), round(a.Standard), round(a.HighPerformance)}
}

// Total returns the sum of all amounts.
func (a Amounts) Total() float64 { return a.GPU + a.CPU + a.Disk + a.Standard + a.HighPerformance }

// Spending returns what owner spends now, and has spent in this month in UTC, for pods, clusters and
// workers of endpoints (docs/decisions.md 56). sources know what is in use now. What another server
// has observed until a short while ago goes on at its rate.
func (s *Service) Spending(ctx context.Context, owner string, sources ...UsageSource) (budget.Spending, error) {
	now := s.clock.Now().UTC()
	from := budget.Month(now)
	uses, err := s.usage(ctx, owner, from, budget.NextMonth(now), sources)
	sum := budget.Spending{At: now}
	for i := range uses {
		u := &uses[i]
		if u.Kind == pods.VolumeUsage {
			continue
		}
		to, rate := u.To, u.GPU+u.CPU+u.Disk
		if to.IsZero() || u.Open && now.Sub(to) < Abandoned {
			to = now
			sum.Rate += rate
		}
		if to.After(now) { // the clock was set back
			to = now
		}
		began := u.From
		if began.Before(from) {
			began = from
		}
		sum.Month += rate * max(to.Sub(began).Hours(), 0)
	}
	return sum, err
}

// Spenders returns whose workers are in use now, as far as any server has observed them.
func (s *Service) Spenders(ctx context.Context) (owners []string, err error) {
	list, err := s.store.Open(ctx, pods.WorkerUsage)
	if err != nil {
		return nil, fmt.Errorf("billing: look up who has workers: %w", err)
	}
	for _, u := range list {
		owners = append(owners, u.Owner)
	}
	slices.Sort(owners)
	return slices.Compact(owners), nil
}

package billing_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/problem"
)

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err) // a constant of these tests
	}
	return t
}

var close9 = cmpopts.EquateApprox(0, 1e-9)

// live are usages that have not ended.
type live []pods.Usage

func (l live) Usage(context.Context, string) ([]pods.Usage, error) { return l, nil }

func TestUseIsSpreadOverBucketsOfEverySize(t *testing.T) {
	s := billing.New(memory.NewBilling(), clock.NewManual(at("2026-03-05T12:00:00Z"))) // a Thursday
	u := pods.Usage{Owner: "alice", Kind: pods.PodUsage, ID: "p", From: at("2025-12-31T22:30:00Z"), To: at("2026-03-02T01:30:00Z"), GPU: 2, Disk: 1}
	if err := s.Record(t.Context(), []pods.Usage{u}); err != nil {
		t.Fatal(err)
	}
	hours := u.To.Sub(u.From).Hours()
	for size, want := range map[billing.BucketSize]struct {
		records    int
		start, end string
		first      float64 // hours
	}{
		billing.Hour:  {1444, "2025-12-31T22:00:00Z", "2025-12-31T23:00:00Z", 0.5},
		billing.Day:   {62, "2025-12-31T00:00:00Z", "2026-01-01T00:00:00Z", 1.5},
		billing.Week:  {10, "2025-12-29T00:00:00Z", "2026-01-05T00:00:00Z", 97.5},
		billing.Month: {4, "2025-12-01T00:00:00Z", "2026-01-01T00:00:00Z", 1.5},
		billing.Year:  {2, "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z", 1.5},
	} {
		r, err := s.Report(t.Context(), "alice", billing.Query{Size: size, Start: at("2025-12-01T00:00:00Z")})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Records) != want.records {
			t.Errorf("%s: %d records, want %d", size, len(r.Records), want.records)
			continue
		}
		first := billing.Record{
			Start: at(want.start), End: at(want.end), Kind: pods.PodUsage, ID: "p",
			Amounts: billing.Amounts{GPU: 2 * want.first, Disk: want.first},
		}
		if diff := cmp.Diff(first, r.Records[0], close9); diff != "" {
			t.Errorf("%s: the first record (-want +got):\n%s", size, diff)
		}
		var sum billing.Amounts
		for i, x := range r.Records {
			sum = sum.Add(x.Amounts)
			if i > 0 && !x.Start.Equal(r.Records[i-1].End) {
				t.Errorf("%s: a bucket begins at %v, and the one before ends at %v", size, x.Start, r.Records[i-1].End)
			}
		}
		if math.Abs(sum.Total()-3*hours) > 1e-6 {
			t.Errorf("%s: %v in all, want %v: nothing may be lost between buckets", size, sum.Total(), 3*hours)
		}
	}
}

func TestAWindowBeginsAndEndsWithABucket(t *testing.T) {
	s := billing.New(memory.NewBilling(), clock.NewManual(at("2026-03-05T12:34:56Z")))
	for name, row := range map[string]struct {
		q          billing.Query
		start, end string
	}{
		"nothing said":     {billing.Query{}, "2026-02-03T00:00:00Z", "2026-03-06T00:00:00Z"},
		"inside of days":   {billing.Query{Start: at("2026-01-01T05:00:00+02:00"), End: at("2026-01-02T00:00:01Z")}, "2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z"},
		"on boundaries":    {billing.Query{Start: at("2026-01-01T00:00:00Z"), End: at("2026-01-02T00:00:00Z")}, "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"},
		"the last hour":    {billing.Query{LastN: 1, Size: billing.Hour}, "2026-03-05T12:00:00Z", "2026-03-05T13:00:00Z"},
		"the last 3 weeks": {billing.Query{LastN: 3, Size: billing.Week}, "2026-02-16T00:00:00Z", "2026-03-09T00:00:00Z"},
		"the last 2 years": {billing.Query{LastN: 2, Size: billing.Year}, "2025-01-01T00:00:00Z", "2027-01-01T00:00:00Z"},
	} {
		r, err := s.Report(t.Context(), "alice", row.q)
		if err != nil || !r.Start.Equal(at(row.start)) || !r.End.Equal(at(row.end)) {
			t.Errorf("%s: %v to %v, %v; want %s to %s", name, r.Start, r.End, err, row.start, row.end)
		}
	}
	for name, row := range map[string]struct {
		q      billing.Query
		status int
	}{
		"another size":      {billing.Query{Size: "minute"}, 422},
		"both ways":         {billing.Query{LastN: 1, Start: at("2026-01-01T00:00:00Z")}, 400},
		"backwards":         {billing.Query{Start: at("2026-01-02T00:00:00Z"), End: at("2026-01-01T00:00:00Z")}, 400},
		"too many":          {billing.Query{Size: billing.Hour, Start: at("1926-01-01T00:00:00Z")}, 422},
		"too many at once":  {billing.Query{LastN: billing.MaxBuckets + 1}, 422},
		"fewer than none":   {billing.Query{LastN: -1}, 422},
		"before year 1":     {billing.Query{LastN: 3000, Size: billing.Year}, 422},
		"after year 9999":   {billing.Query{Size: billing.Year, End: at("9999-12-31T23:59:59Z")}, 422},
		"in the far future": {billing.Query{Start: at("2027-01-01T00:00:00Z")}, 400},
	} {
		if _, err := s.Report(t.Context(), "alice", row.q); problem.Of(err).Status != row.status {
			t.Errorf("%s: %v, want a %d", name, err, row.status)
		}
	}
}

func TestWhatGoesOnCountsUntilNowAndOnce(t *testing.T) {
	s := billing.New(memory.NewBilling(), clock.NewManual(at("2026-03-05T12:00:00Z")))
	ended := pods.Usage{Owner: "alice", Kind: pods.PodUsage, ID: "p", From: at("2026-03-05T01:00:00Z"), To: at("2026-03-05T02:00:00Z"), CPU: 1}
	others := ended
	others.Owner = "bob"
	volume := pods.Usage{Owner: "alice", Kind: pods.VolumeUsage, ID: "v", From: at("2026-03-05T10:00:00Z"), Standard: 1}
	for range 2 { // nothing is counted twice
		if err := s.Record(t.Context(), []pods.Usage{ended, others}); err != nil {
			t.Fatal(err)
		}
	}
	on := ended
	on.From, on.To = at("2026-03-05T11:00:00Z"), time.Time{}
	sources := []billing.UsageSource{live{ended, on}, live{volume}}
	sum := func(q billing.Query) (a billing.Amounts) {
		t.Helper()
		r, err := s.Report(t.Context(), "alice", q, sources...)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range r.Records {
			a = a.Add(x.Amounts)
		}
		return a.Round()
	}
	for name, row := range map[string]struct {
		q    billing.Query
		want billing.Amounts
	}{
		"all":            {billing.Query{}, billing.Amounts{CPU: 2, Standard: 2}},
		"pods":           {billing.Query{Kind: pods.PodUsage}, billing.Amounts{CPU: 2}},
		"another pod":    {billing.Query{Kind: pods.PodUsage, ID: "q"}, billing.Amounts{}},
		"one volume":     {billing.Query{Kind: pods.VolumeUsage, ID: "v"}, billing.Amounts{Standard: 2}},
		"the last hour":  {billing.Query{LastN: 1, Size: billing.Hour}, billing.Amounts{}},
		"two hours more": {billing.Query{LastN: 2, Size: billing.Hour}, billing.Amounts{CPU: 1, Standard: 1}},
	} {
		if diff := cmp.Diff(row.want, sum(row.q), close9); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestWhatIsNoLongerKeptIsDeletedInSteps(t *testing.T) {
	store, now := memory.NewBilling(), at("2026-03-05T12:00:00Z")
	s := billing.New(store, clock.NewManual(now))
	var uses []pods.Usage
	for i := range 2500 {
		end := now.Add(-billing.Retention).Add(time.Duration(i-2400) * time.Minute)
		uses = append(uses, pods.Usage{Owner: "alice", Kind: pods.PodUsage, ID: "p", From: end.Add(-time.Minute), To: end, GPU: 1})
	}
	if err := s.Record(t.Context(), uses); err != nil {
		t.Fatal(err)
	}
	if err := s.Expire(t.Context(), billing.Retention); err != nil {
		t.Fatal(err)
	}
	left, err := store.Usage(t.Context(), "alice", at("2020-01-01T00:00:00Z"), now)
	if err != nil || len(left) != 100 {
		t.Errorf("%d usages are left, %v; want the 100 of the last 400 days", len(left), err)
	}
}

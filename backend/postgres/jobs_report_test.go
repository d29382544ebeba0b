package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

func TestMovesOfTimeAndOfPurgesAreReportedByTheServerThatMakesThem(t *testing.T) {
	suite.SkipUnlessLong(t)
	url := postgresql.Database(t)
	var got, others []queue.OpKind
	q, other := openURL(t, url).Jobs(), openURL(t, url).Jobs()
	for q, list := range map[queue.JobQueue]*[]queue.OpKind{q: &got, other: &others} {
		q.(queue.Reporter).Report(func(moves []queue.Moved) {
			for _, m := range moves {
				*list = append(*list, m.Kind)
			}
		})
	}
	submit(t, other, newJob("a"), newJob("b"))
	claim(t, other, instant, "w", 1, nil)
	if _, err := q.Expire(t.Context(), instant+120_000, 10); err != nil {
		t.Fatal(err)
	}
	if n, _, err := q.Purge(t.Context(), instant+120_000, queue.PurgeQuery{Endpoint: "e", UpTo: 1 << 40, Limit: 10}); n == 0 || err != nil {
		t.Fatal(n, err)
	}
	if len(got) < 2 || got[0] != queue.OpTick || !slices.Contains(got, queue.OpPurge) || len(others) > 0 {
		t.Errorf("%v and %v are reported, want a tick and purges of the first alone", got, others)
	}
}

func TestTheLoadOfADatabaseIsCounted(t *testing.T) {
	suite.SkipUnlessLong(t)
	s := openURL(t, postgresql.Database(t))
	q := s.Jobs()
	five, low, nine, hooked := newJob("five"), newJob("low"), newJob("nine"), newJob("hooked")
	five.Priority, low.Flags, nine.Priority, hooked.Priority = 5, queue.LowPriority, 9, 9
	hooked.Flags, hooked.Webhook = queue.HasWebhook, "https://receiver.example/hook"
	submit(t, q, five, low, nine, hooked)
	wantPriorities(t, q, [11]int64{5: 1, 9: 2, 10: 1})
	j := claim(t, q, instant, "w", 1, nil)[0]
	wantPriorities(t, q, [11]int64{5: 1, 9: 1, 10: 1})
	res := make([]queue.Result, 2)
	must(t, q.Apply(t.Context(), instant+1, []queue.Op{
		{Ref: j.Ref, Kind: queue.OpChunk, Worker: "w", Payload: []byte("12345")},
		{Ref: hooked.Ref, Kind: queue.OpCancel},
	}, res))
	want := queue.Load{Undrained: 5, Deliveries: 1, OldestDelivery: instant + 1}
	if l, err := q.Load(t.Context()); l != want || err != nil {
		t.Errorf("Load = %+v, %v, want %+v", l, err, want)
	}
	ds, err := q.Deliveries(t.Context(), instant+2, instant+60_000, 10)
	if err != nil || len(ds) != 1 {
		t.Fatal(ds, err)
	}
	if l, err := q.Load(t.Context()); l != want || err != nil {
		t.Errorf("during an attempt Load = %+v, %v, want %+v", l, err, want)
	}
	must(t, q.Record(t.Context(), []queue.Attempt{{Ref: hooked.Ref, DeliveryID: ds[0].ID, Token: ds[0].Token, At: instant + 3, Status: 200}}))
	want.Deliveries, want.OldestDelivery = 0, 0
	if l, err := q.Load(t.Context()); l != want || err != nil {
		t.Errorf("after the delivery Load = %+v, %v, want %+v", l, err, want)
	}
}

func wantPriorities(t *testing.T, q queue.Measurer, want [11]int64) {
	t.Helper()
	if n, err := q.Priorities(t.Context(), "e"); err != nil || n != want {
		t.Errorf("Priorities = %v, %v, want %v", n, err, want)
	}
}

// One look at all endpoints says what a look at each says.
func TestASurveyIsTheSumOfWhatEachEndpointHas(t *testing.T) {
	q := openURL(t, postgresql.Database(t)).Jobs()
	var jobs []queue.Job
	add := func(endpoint, id string, set func(*queue.Job)) {
		j := newJob(id)
		j.Endpoint = endpoint
		if set != nil {
			set(&j)
		}
		jobs = append(jobs, j)
	}
	add("a", "first", func(j *queue.Job) { j.Priority = 2 })
	add("a", "second", func(j *queue.Job) { j.Priority = 9 })
	add("a", "low", func(j *queue.Job) { j.Flags = queue.LowPriority })
	add("b", "one", nil)
	add("b", "delayed", func(j *queue.Job) { j.Delayed, j.Queued = true, instant+60_000 })
	add("c", "alone", func(j *queue.Job) { j.Flags = queue.LowPriority })
	add("d", "ended", nil)
	submit(t, q, jobs...)
	must(t, q.Apply(t.Context(), instant+1, []queue.Op{{Ref: queue.Ref{Endpoint: "d", ID: "ended"}, Kind: queue.OpCancel}}, make([]queue.Result, 1)))
	if js, err := q.Claim(t.Context(), instant+2, []queue.Slot{{Endpoint: "b", Worker: "w", Until: instant + 60_000, N: 1}}, nil); err != nil || len(js) != 1 {
		t.Fatal(js, err)
	}
	sums, err := q.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, endpoint := range []string{"a", "b", "c", "d", "none"} {
		st, err := q.Stats(t.Context(), instant+3, endpoint, nil)
		must(t, err)
		n, err := q.Priorities(t.Context(), endpoint)
		must(t, err)
		if want := (queue.Summary{Queued: n, Delayed: st.Delayed, Running: st.Running, Oldest: st.Oldest}); sums[endpoint] != want {
			t.Errorf("the survey has %+v of %s, want %+v", sums[endpoint], endpoint, want)
		}
	}
	if sums["a"].Queued != [11]int64{2: 1, 9: 1, 10: 1} || sums["b"].Running != 1 || sums["a"].Oldest == 0 {
		t.Errorf("the survey has %+v", sums)
	}
}

// The survey of a service asks for what holds keep from starting, where there are any: such jobs wait for no worker.
func TestASurveyOfAServiceCountsJobsOfAHeldKeyAsHeld(t *testing.T) {
	store := openURL(t, postgresql.Database(t))
	q, eps, now := store.Jobs(), store.Endpoints(), queue.At(time.Now())
	for _, id := range []string{"e", "other"} {
		must(t, eps.Create(t.Context(), &serverless.Endpoint{ID: id, Name: id}))
	}
	add := func(endpoint, id, key string, delayed bool) queue.Job {
		j := newJob(id)
		j.Endpoint, j.Key, j.Submitted, j.Queued, j.Expires = endpoint, key, now, now, now+7_200_000
		if delayed {
			j.Delayed, j.Queued = true, now+3_600_000
		}
		submit(t, q, j)
		return j
	}
	add("e", "first", "k", false)
	j := claim(t, q, now, "w", 1, nil)[0]
	res := make([]queue.Result, 1)
	must(t, q.Apply(t.Context(), now, []queue.Op{{Ref: j.Ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: j.Worker, Token: j.Token, Payload: []byte("1"), Hold: time.Hour}}, res))
	must(t, res[0].Err)
	add("e", "second", "k", false)
	add("e", "later", "", true)
	add("other", "third", "k", false)
	list, err := serverless.New(q, eps, nil).Survey(t.Context())
	must(t, err)
	for i := range list {
		l := &list[i]
		got := []int64{l.Ready, l.Delayed, l.Blocked, l.Held, min(int64(l.Oldest), 1)}
		want := map[string][]int64{"e": {0, 1, 0, 1, 0}, "other": {1, 0, 0, 0, 1}}[l.Endpoint.ID]
		if !slices.Equal(got, want) {
			t.Errorf("%s has ready, delayed, blocked and held jobs and Oldest %v, want %v", l.Endpoint.ID, got, want)
		}
	}
	if len(list) != 2 {
		t.Errorf("the survey has %d endpoints", len(list))
	}
}

// What a scrape reads of many endpoints takes no longer than a scrape may.
func TestASurveyOfManyEndpointsIsQuick(t *testing.T) {
	if !longest() {
		t.Skip("a measurement: it runs with PODYARD_LONG")
	}
	store := openURL(t, postgresql.Database(t))
	jobs, eps := serverless.New(store.Jobs(), store.Endpoints(), nil), store.Endpoints()
	const n = 10_000
	for i := range n {
		e := &serverless.Endpoint{ID: fmt.Sprint("endpoint", i), Name: "e"}
		must(t, eps.Create(t.Context(), e))
		_, err := jobs.Submit(t.Context(), "alice", e.ID, serverless.Request{Input: []byte(`{}`)})
		must(t, err)
	}
	best := time.Hour
	for range 5 {
		began := time.Now()
		list, err := jobs.Survey(t.Context())
		if err != nil || len(list) != n || list[0].Queued[queue.DefaultPriority] != 1 || list[0].Oldest == 0 {
			t.Fatalf("Survey has %d endpoints, %v", len(list), err)
		}
		best = min(best, time.Since(began))
	}
	if t.Logf("the fastest of 5 surveys took %v", best); best > suite.Within(150*time.Millisecond) {
		t.Errorf("a survey of %d endpoints took %v", n, best)
	}
}

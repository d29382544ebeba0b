package workers_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/workers"
)

const grace = 10 * time.Second

func jobs(ids ...queue.JobID) (list []queue.Job) {
	for i, id := range ids {
		j := queue.Job{Ref: queue.Ref{Endpoint: "e", ID: id}}
		j.Token = queue.Token(i + 1)
		list = append(list, j)
	}
	return list
}

func ref(id queue.JobID) queue.Ref { return queue.Ref{Endpoint: "e", ID: id} }

func ids(ops []queue.Op) (list []string) {
	for i := range ops {
		list = append(list, fmt.Sprintf("%d %s", ops[i].Kind, ops[i].ID))
	}
	slices.Sort(list)
	return list
}

func op(k queue.OpKind, id queue.JobID) string { return fmt.Sprintf("%d %s", k, id) }

func want[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestJoinFindsTheWorkerThatIsThere(t *testing.T) {
	var r workers.Registry
	w, joined := r.Join("e", "w", 1, 100)
	again, second := r.Join("e", "w", 2, 50)
	if !joined || second || again != w {
		t.Errorf("joined = %v and %v, the same worker: %v; want one worker that joined once", joined, second, again == w)
	}
	if next, left := r.Expire(60); next != 100 || left != nil {
		t.Errorf("Expire = %d, %v, want 100: a shorter promise does not replace a longer one", next, left)
	}
	if r.Find(workers.Key{Endpoint: "e", ID: "w"}) != w || r.Find(workers.Key{Endpoint: "f", ID: "w"}) != nil {
		t.Error("Find does not tell the workers of two endpoints apart")
	}
}

func TestEndpointHasOneLocalWorkerOfAnID(t *testing.T) {
	var r workers.Registry
	remote, _ := r.Join("e", "w", 1, 100)
	remote.Unhealthy("says somebody")
	w := r.JoinLocal("e", "w", 2)
	if v, _ := r.View(workers.Key{Endpoint: "e", ID: "w"}); w == remote || !w.IsLocal() || !v.Takes() {
		t.Errorf("the local worker is %+v, want one of its own, whatever was reported for its id", v)
	}
	if !r.HasLocal(workers.Key{Endpoint: "e", ID: "w"}) || r.HasLocal(workers.Key{Endpoint: "f", ID: "w"}) {
		t.Error("HasLocal does not tell the endpoints apart")
	}
	if r.JoinLocal("e", "w", 3) != nil {
		t.Error("a second local worker got the id of the first")
	}
	if next, left := r.Expire(1000); next != 0 || left != nil {
		t.Errorf("Expire = %d, %v: a local worker expired", next, left)
	}
	w.Leave()
	if w2 := r.JoinLocal("e", "w", 4); w2 == nil || w2 == w {
		t.Error("an id is not free after its worker has left")
	}
}

func TestRemoteWorkerExpiresUnlessItWaitsForAJob(t *testing.T) {
	var r workers.Registry
	a, _ := r.Join("e", "a", 0, 30)
	r.Join("f", "b", 0, 20)
	a.StartPoll()
	a.StartPoll()
	if next, left := r.Expire(20); next != 0 || !slices.Equal(left, []string{"f"}) {
		t.Errorf("Expire = %d, %v, want f: b's time is over, and a waits", next, left)
	}
	a.EndPoll(40)
	if next, _ := r.Expire(35); next != 0 {
		t.Errorf("Expire = %d while another call of a waits, want 0", next)
	}
	a.EndPoll(50)
	if next, left := r.Expire(49); next != 50 || left != nil {
		t.Errorf("Expire = %d, %v, want 50", next, left)
	}
	if _, left := r.Expire(50); !slices.Equal(left, []string{"e"}) || len(r.List("e")) != 0 {
		t.Errorf("Expire forgets %v, want a of e", left)
	}
}

func TestStopOfALocalWorkerCallsItsFunction(t *testing.T) {
	var r workers.Registry
	w := r.JoinLocal("e", "w", 0)
	w.Lease(jobs("j", "k"), 1)
	stopped := 0
	if !w.OnStop("j", func() { stopped++ }) {
		t.Fatal("OnStop = false for a job that is held")
	}
	if at := r.Stop(ref("j"), "w", 2); at != 0 || stopped != 1 {
		t.Errorf("Stop = %d after %d calls, want 0 after one", at, stopped)
	}
	r.Stop(ref("j"), "w", 3)
	if w.OnStop("j", func() { stopped++ }) || stopped != 1 {
		t.Errorf("the job is still held, or was stopped %d times", stopped)
	}
	w.OnStop("k", func() { stopped++ })
	w.Leave()
	if r.Stop(ref("k"), "w", 4); stopped != 1 {
		t.Error("a worker that has left was told to stop a job")
	}
}

func TestRemoteWorkerGetsEachStopNoticeOnce(t *testing.T) {
	var r workers.Registry
	w, _ := r.Join("e", "w", 0, 100)
	w.Lease(jobs("j", "k"), 1)
	_, changed, _ := w.StopNotices()
	at := queue.Instant(1000)
	if check := r.Stop(ref("j"), "w", at); check != at.Add(grace) {
		t.Errorf("Stop = %d, want to look again at %d", check, at.Add(grace))
	}
	select {
	case <-changed:
	default:
		t.Error("the worker was not woken")
	}
	got, _, _ := w.StopNotices()
	want(t, "notices", []queue.JobID{"j"}, got)
	if got, _, _ := w.StopNotices(); got != nil {
		t.Errorf("notices again: %v, want none", got)
	}
	if r.Stop(ref("j"), "w", at+1) != 0 {
		t.Error("a second stop of a job made a second notice")
	}
}

// A job may have been taken at another server, or before this process began.
func TestStopNoticeNeedsNoLeaseInTheRegistry(t *testing.T) {
	var r workers.Registry
	w, _ := r.Join("e", "w", 0, 100)
	if r.Stop(ref("j"), "w", 1) == 0 {
		t.Error("no notice")
	}
	got, _, _ := w.StopNotices()
	want(t, "notices", []queue.JobID{"j"}, got)
	if r.Stop(ref("j"), "unknown", 1) != 0 {
		t.Error("a notice for a worker that is not here")
	}
}

// ping is a ping whose operations all succeed. It returns them.
func ping(w *workers.Worker, now queue.Instant, lists ...queue.JobID) []string {
	ops, _ := w.Ping(lists, nil, now, now+30_000, grace)
	w.Pinged(ops, make([]queue.Result, len(ops)), now)
	return ids(ops)
}

func TestPingOfAWorkerThatListsItsJobsEndsThoseThatItDoesNotList(t *testing.T) {
	var r workers.Registry
	w, _ := r.Join("e", "w", 0, 100)
	w.Lease(jobs("a", "b"), 0)
	want(t, "first ping", []string{op(queue.OpRenew, "a"), op(queue.OpRenew, "c")}, ping(w, 5000, "a", "c"))
	want(t, "in the grace", []string{op(queue.OpRenew, "a")}, ping(w, 10_000, "a"))
	want(t, "past the grace", []string{op(queue.OpRenew, "a"), op(queue.OpNoResult, "b")}, ping(w, 10_001, "a"))
	want(t, "what was listed before is not renewed", []string(nil), ping(w, 30_000))
	want(t, "the jobs are a and c, which was listed once", []queue.JobID{"a", "c"}, r.List("e")[0].Jobs)
}

func TestPingOfAWorkerThatNeverListedAJobRenewsAllItHas(t *testing.T) {
	var r workers.Registry
	w, _ := r.Join("e", "w", 0, 100)
	w.Lease(jobs("a", "b"), 0)
	want(t, "ping", []string{op(queue.OpRenew, "a"), op(queue.OpRenew, "b")}, ping(w, 20_000))
	ops, _ := w.Ping(nil, []queue.JobID{"b", "of another server"}, 40_000, 70_000, grace)
	want(t, "with jobs of other servers", []string{op(queue.OpRenew, "a"), op(queue.OpRenew, "b"), op(queue.OpRenew, "of another server")}, ids(ops))
	for i := range ops {
		if ops[i].Adopt {
			t.Errorf("the renewal of %s adopts: the worker has not said that it works on it", ops[i].ID)
		}
	}
}

// Workers of some SDKs share the file with the ids of their jobs.
func TestPingThatListsAJobThatTheWorkerNeverHadProvesNothing(t *testing.T) {
	var r workers.Registry
	w, _ := r.Join("e", "w", 0, 100)
	w.Lease(jobs("a"), 0)
	ping(w, 1000, "a")
	ops, _ := w.Ping([]queue.JobID{"foreign"}, nil, 5000, 35_000, grace)
	lost := w.Pinged(ops, []queue.Result{{Err: queue.ErrLeaseLost, State: queue.State{Worker: "x", Lost: "y"}}}, 5000)
	if notices, _, _ := w.StopNotices(); lost != nil || notices != nil {
		t.Errorf("the worker must stop %v and %v, want nothing: it never had the job", lost, notices)
	}
	want(t, "the next ping", []string{op(queue.OpRenew, "a"), op(queue.OpRenew, "foreign")}, ping(w, 30_000, "foreign"))
	_, ignored := w.Ping([]queue.JobID{"foreign"}, nil, 40_000, 70_000, grace)
	if ignored || r.Unresponsive(80_000) != nil {
		t.Error("a worker is suspected because it lists a job that it never had")
	}
}

func TestAJobThatTheWorkerHasLostIsOneToStop(t *testing.T) {
	for name, s := range map[string]queue.State{"it ended with it": {Worker: "w"}, "it lost it": {Lost: "w", Worker: "x"}} {
		var r workers.Registry
		w, _ := r.Join("e", "w", 0, 100)
		ops, _ := w.Ping([]queue.JobID{"j"}, nil, 5000, 35_000, grace)
		want(t, name, []queue.Ref{ref("j")}, w.Pinged(ops, []queue.Result{{Err: queue.ErrLeaseLost, State: s}}, 5000))
	}
}

func TestWorkerThatHasNoJobEndsItsLeases(t *testing.T) {
	var r workers.Registry
	w, _ := r.Join("e", "w", 0, 100)
	w.Lease(jobs("a"), 1000)
	w.Lease(jobs("b"), 2000)
	want(t, "before a was leased", []string(nil), ids(w.Idle(999)))
	got := w.Idle(1000)
	want(t, "before b was leased", []string{op(queue.OpNoResult, "a")}, ids(got))
	if got[0].Token != 1 || got[0].Error == "" {
		t.Errorf("the operation is %+v, want the token of the lease and a reason", got[0])
	}
}

func TestOnlyWhoAsksForAJobHasJoined(t *testing.T) {
	var r workers.Registry
	var told []string
	r.Watch(func(k workers.Key, here bool) { told = append(told, fmt.Sprint(k.ID, " ", here)) })
	pings, _ := r.Join("e", "pings", 0, 100)
	ping(pings, 1)
	asks, _ := r.Join("e", "asks", 0, 200)
	if !asks.Ask() || asks.Ask() {
		t.Error("Ask does not tell the first time from others")
	}
	list := r.List("e")
	want(t, "workers that have not asked", map[queue.WorkerID]bool{"asks": false, "pings": true},
		map[queue.WorkerID]bool{list[0].ID: list[0].Starting, list[1].ID: list[1].Starting})
	r.Expire(1000)
	want(t, "joined and left", []string{"asks true", "asks false"}, told)
}

func TestWorkerThatListsAJobItShouldStopIsUnresponsiveAfterAGrace(t *testing.T) {
	var r workers.Registry
	w, _ := r.Join("e", "w", 0, 1_000_000)
	w.Lease(jobs("j"), 0)
	r.Stop(ref("j"), "w", 0)
	w.StopNotices()
	for _, at := range []queue.Instant{4000, 8000} {
		if ops, ignored := w.Ping([]queue.JobID{"j"}, nil, at, at+30000, grace); !ignored || len(ops) != 0 {
			t.Errorf("ping at %d = %v, %v: a job to stop was renewed", at, ops, ignored)
		}
	}
	if next, _ := r.Expire(9000); next != 10000 {
		t.Errorf("Expire = %d, want a look at the end of the grace", next)
	}
	if list := r.Unresponsive(9999); list != nil {
		t.Errorf("unresponsive before the grace is over: %v", list)
	}
	want(t, "unresponsive", []workers.Key{{Endpoint: "e", ID: "w"}}, r.Unresponsive(10000))
	w.Ping(nil, nil, 12000, 42000, grace)
	if list := r.Unresponsive(12000); list != nil {
		t.Errorf("unresponsive after it has stopped: %v", list)
	}
}

func TestReportOfAnEarlierLeaseEndsNothing(t *testing.T) {
	var r workers.Registry
	w, _ := r.Join("e", "w", 0, 100)
	w.Lease(jobs("j"), 1) // token 1
	w.Done(&queue.Op{Ref: ref("j"), Token: 9}, 2, true)
	if v := r.List("e")[0]; len(v.Jobs) != 1 || v.Served {
		t.Errorf("after a report of another lease: %+v", v)
	}
	w.Done(&queue.Op{Ref: ref("j"), Token: 1}, 3, true)
	if v := r.List("e")[0]; len(v.Jobs) != 0 || !v.Served || v.IdleSince != 3 {
		t.Errorf("after its own report: %+v", v)
	}
}

func TestDrainedAndUnhealthyWorkersTakeNothing(t *testing.T) {
	var r workers.Registry
	w, _ := r.Join("e", "w", 0, 100)
	changed, takes := w.StartPoll()
	if !takes || !r.Drain(w.Key()) || r.Drain(workers.Key{Endpoint: "e", ID: "unknown"}) {
		t.Error("Drain does not say whether the worker is here")
	}
	select {
	case <-changed:
	default:
		t.Error("a poll was not woken")
	}
	if _, takes := w.Changed(); takes {
		t.Error("a drained worker takes jobs")
	}
	if v := r.List("e")[0]; v.Takes() || !v.Polling {
		t.Errorf("view = %+v", v)
	}
	u, _ := r.Join("e", "u", 0, 100)
	u.Unhealthy("gpu: 79 C")
	if v := r.List("e")[0]; v.Takes() || v.Unhealthy != "gpu: 79 C" {
		t.Errorf("view = %+v", v)
	}
}

func TestWorkerThatIsHeardOfLaterExpiresLater(t *testing.T) {
	var r workers.Registry
	r.Join("e", "a", 0, 30)
	r.Join("f", "b", 0, 40)
	r.Join("e", "a", 20, 100)
	if next, left := r.Expire(50); next != 100 || !slices.Equal(left, []string{"f"}) {
		t.Errorf("Expire = %d, %v, want 100 and b of f", next, left)
	}
}

func TestNoticeWaitsForAPingThatWasOnItsWay(t *testing.T) {
	var r workers.Registry
	w, _ := r.Join("e", "w", 0, 1_000_000)
	w.Lease(jobs("j"), 0)
	r.Stop(ref("j"), "w", 1000)
	w.Ping(nil, nil, 2000, 32000, grace) // the job had not arrived when it was sent
	got, _, _ := w.StopNotices()
	want(t, "notices", []queue.JobID{"j"}, got)
}

func TestJobThatComesBackIsNotStopped(t *testing.T) {
	var r workers.Registry
	w, _ := r.Join("e", "w", 0, 1_000_000)
	w.Lease(jobs("j"), 0)
	r.Stop(ref("j"), "w", 1000)
	w.Lease(jobs("j"), 2000)
	if got, _, _ := w.StopNotices(); got != nil {
		t.Errorf("told to stop %v, which it was given again", got)
	}
}

func TestWorkerThatIsSlowToStopIsNotUnresponsive(t *testing.T) {
	var r workers.Registry
	w, _ := r.Join("e", "w", 0, 1_000_000)
	w.Lease(jobs("j"), 0)
	r.Stop(ref("j"), "w", 0)
	w.Ping([]queue.JobID{"j"}, nil, 4000, 34000, grace)
	if list := r.Unresponsive(20000); list != nil {
		t.Errorf("%v is unresponsive, and has not listed the job since", list)
	}
}

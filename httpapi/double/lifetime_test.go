package double_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/httpapi/apitest"
	"github.com/podyard/podyard/httpapi/double"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless"
)

// story uses everything random: ids, ports, jitter, probabilities, signatures.
func story(t *testing.T, seed uint64) string {
	t.Helper()
	s := apitest.StartWith(t, &double.Options{Seed: seed})
	s.Handle("echo", echo)
	s.Endpoint("script").After(3*time.Second).Fail("no").Stream(1, 2)
	s.Fault(double.Fault{Name: double.FaultStatus, Operation: "health", Probability: 0.5})
	var log strings.Builder
	note := func(a answer) { fmt.Fprintf(&log, "%d %v %s\n", a.code, a.header, a.body) }
	note(want(t, s, 201, "POST", "/v2/registries", `{"name":"r","username":"u","password":"p"}`))
	note(want(t, s, 201, "POST", "/v2/pods", strings.Replace(pod, `"cpu":`, `"ports":["80/http"],"cpu":`, 1)))
	for range 5 {
		note(want(t, s, 200, "POST", "/v2/echo/runsync", `{"input":{"a":1},"webhook":"http://client.test/"}`))
		note(call(t, s, "GET", "/v2/echo/health", ""))
		note(want(t, s, 200, "POST", "/v2/script/run", `{"input":{}}`))
		s.Advance(time.Second)
	}
	s.RunUntilIdle()
	note(want(t, s, 200, "GET", "/v2/pods", ""))
	note(want(t, s, 200, "GET", "/v2/script/requests", ""))
	fmt.Fprintf(&log, "%+v\n%+v\n", s.Double.Jobs(), s.Double.Webhooks())
	return log.String()
}

func TestSameSeedAndCallsGiveTheSameBytes(t *testing.T) {
	one := story(t, 7)
	for range 5 {
		if diff := cmp.Diff(one, story(t, 7)); diff != "" {
			t.Fatalf("the second time (-want +got):\n%s", diff)
		}
	}
	if one == story(t, 8) {
		t.Error("another seed gives the same bytes")
	}
}

func TestResetMakesEverythingAsItWas(t *testing.T) {
	s := apitest.StartWith(t, &double.Options{Seed: 3})
	s.Handle("echo", echo)
	first := func() string {
		return want(t, s, 200, "POST", "/v2/echo/runsync", `{"input":{}}`).body + want(t, s, 201, "POST", "/v2/pods", pod).body
	}
	before := first()
	s.Endpoint("script").Reply(1)
	s.Fault(double.Fault{Name: double.FaultStatus})
	s.Advance(time.Hour)
	s.Reset(3)
	if !s.Now().Equal(double.DefaultStart) || len(s.Double.Jobs())+len(s.Double.Requests())+len(s.Double.Faults()) != 0 {
		t.Errorf("after Reset: %v, %d jobs, %d requests, %d faults", s.Now(), len(s.Double.Jobs()), len(s.Double.Requests()), len(s.Double.Faults()))
	}
	want(t, s, 404, "GET", "/v2/script/health", "")
	if diff := cmp.Diff(before, first()); diff != "" {
		t.Errorf("after Reset with the same seed (-want +got):\n%s", diff)
	}
}

func TestSeedIsOfWhatFollows(t *testing.T) {
	ids := func(seeds ...uint64) (list []string) {
		s := apitest.StartWith(t, &double.Options{Seed: 1})
		s.Queue("q")
		for _, seed := range seeds {
			s.SetSeed(seed)
			list = append(list, run(t, s, "q", `{"input":{}}`))
		}
		return list
	}
	got := ids(1, 2, 3)
	if diff := cmp.Diff(got, ids(1, 2, 3)); diff != "" {
		t.Errorf("the second time (-want +got):\n%s", diff)
	}
	if alone := ids(3); alone[0] != got[2] {
		t.Errorf("the first id of seed 3 = %s, and %s where other seeds were before it", alone[0], got[2])
	}
	s := apitest.Start(t)
	s.Queue("q")
	id := run(t, s, "q", `{"input":{}}`)
	s.SetSeed(8)
	if err := s.Double.SetSeed(0); err == nil {
		t.Error("SetSeed of a seed whose ids are taken = nil, want an error")
	}
	if got := status(t, s, "q", id); got != "IN_QUEUE" {
		t.Errorf("the job that was there = %s, want IN_QUEUE: everything else stays", got)
	}
}

// startUseClose starts a server, uses it in the process and over a socket, and closes it.
func startUseClose(t *testing.T) {
	t.Helper()
	life := &cleanupTB{TB: t}
	defer life.end()
	s := apitest.Start(life)
	s.Handle("echo", echo)
	s.Endpoint("hangs").Hang()
	want(t, s, 200, "POST", "/v2/echo/runsync", `{"input":{}}`)
	run(t, s, "hangs", `{"input":{}}`)
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	if a, err := try(t, &http.Client{Transport: tr}, "GET", s.URL()+"/v2/echo/health", "", "Authorization: "+s.Key); err != nil || a.code != 200 {
		t.Errorf("health = %d %s, %v", a.code, a.body, err)
	}
}

// A cleanupTB is a test whose cleanups can run before its end.
type cleanupTB struct {
	testing.TB
	cleanups []func()
}

func (l *cleanupTB) Cleanup(f func()) { l.cleanups = append(l.cleanups, f) }

func (l *cleanupTB) end() {
	for _, f := range slices.Backward(l.cleanups) {
		f()
	}
}

func TestServersOneAfterAnotherLeakNothing(t *testing.T) {
	suite.SkipUnlessLong(t)
	count := 1000
	if testing.Short() {
		count = 100
	}
	lives := func(n, most, files int) (goroutines, descriptors int, heap uint64) {
		for range n {
			startUseClose(t)
		}
		// Connections of the client end by themselves.
		for end := time.Now().Add(30 * time.Second); (runtime.NumGoroutine() > most || openFiles() > files) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), openFiles(), m.HeapAlloc
	}
	g0, d0, h0 := lives(50, 20, math.MaxInt)
	g1, d1, h1 := lives(count, g0, d0)
	if g1 > g0 {
		t.Errorf("goroutines: %d after 50 servers, %d after %d more", g0, g1, count)
	}
	if d1 > d0 {
		t.Errorf("descriptors: %d after 50 servers, %d after %d more", d0, d1, count)
	}
	if grown := int64(h1) - int64(h0); grown > 4<<20 {
		t.Errorf("heap: %d bytes more after %d servers", grown, count)
	}
	t.Logf("goroutines %d -> %d, descriptors %d -> %d, heap %d -> %d", g0, g1, d0, d1, h0, h1)
}

// openFiles returns the number of open files, -1 where it is not known.
func openFiles() int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(list)
}

func TestTwoHundredServersInParallel(t *testing.T) {
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() { startUseClose(t) })
	}
	all.Wait()
}

// BenchmarkStartFirstAnswerClose measures the time from the start to the first answer, and to
// the end.
func BenchmarkStartFirstAnswerClose(b *testing.B) {
	var first, end time.Duration
	for b.Loop() {
		life := &cleanupTB{TB: b}
		began := time.Now()
		s := apitest.Start(life)
		s.Handle("echo", echo)
		if a := call(b, s, "POST", "/v2/echo/runsync", `{"input":{}}`); a.code != 200 {
			b.Fatal(a.body)
		}
		answered := time.Now()
		life.end()
		first += answered.Sub(began)
		end += time.Since(answered)
	}
	b.ReportMetric(float64(first.Microseconds())/float64(b.N), "µs/first-answer")
	b.ReportMetric(float64(end.Microseconds())/float64(b.N), "µs/close")
}

// busyWeek makes everything that lasts: jobs that run for days in workers of Handle and of an
// image, a job that waits, idle workers, a running pod.
func busyWeek(t testing.TB, s *apitest.Server) {
	t.Helper()
	days := func(ctx context.Context, k *serverless.Task) ([]byte, error) {
		return k.Input, s.Sleep(ctx, 6*24*time.Hour)
	}
	const long = `{"input":{},"policy":{"ttl":604800000,"executionTimeout":604800000}}`
	s.Handle("days", days)
	s.Image("org/days", days, nil)
	s.Declare("scaled", obj{"image": "org/days", "workers": obj{"min": 2, "max": 3}})
	s.Queue("q")
	run(t, s, "q", `{"input":{},"policy":{"ttl":604800000}}`)
	run(t, s, "days", long)
	run(t, s, "scaled", long)
	want(t, s, 201, "POST", "/v2/pods", pod)
	s.Advance(time.Minute)
}

// The work for a week depends on what happens in it, and not on its length: leases are not
// renewed, and nothing is polled.
func TestSevenDaysTakeAsManyStepsAsThingsHappen(t *testing.T) {
	s := apitest.Start(t)
	busyWeek(t, s)
	before := s.Double.Steps()
	s.Advance(7 * 24 * time.Hour)
	if n := s.Double.Steps() - before; n > 20 {
		t.Errorf("seven days took %d steps, want 20 at most", n)
	}
	s.RequireJob(t, apitest.JobMatch{Endpoint: "days", Status: "COMPLETED"})
	s.RequireJob(t, apitest.JobMatch{Endpoint: "scaled", Status: "COMPLETED"})
}

// BenchmarkSevenDays has jobs that run for most of the time, a job that waits, idle workers and
// a running pod.
func BenchmarkSevenDays(b *testing.B) {
	var spent time.Duration
	for b.Loop() {
		life := &cleanupTB{TB: b}
		s := apitest.Start(life)
		busyWeek(b, s)
		began := time.Now()
		s.Advance(7 * 24 * time.Hour)
		spent += time.Since(began)
		life.end()
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N)/1000, "µs/seven-days")
}

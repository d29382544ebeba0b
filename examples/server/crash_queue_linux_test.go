package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
)

// A queueCrash is a server that is killed again and again, and what it has acknowledged.
type queueCrash struct {
	t       *testing.T
	rng     *rand.Rand
	args    []string
	mu      sync.RWMutex // held while there is no server
	in      *instance
	keyed   sync.Map // key: id of the job
	batches sync.Map // id: number of requests that fail
}

const (
	batchSize      = 40
	schedulesThere = 20
)

// TestCrashesFireNothingTwice kills the server while schedules and batches run, most often when a
// minute begins, because schedules fire then:
//
//   - an instant of a schedule makes one job, and none is missed
//   - the counts of a batch are right when it has ended
//   - a submit that is repeated with its key makes one job
func TestCrashesFireNothingTwice(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	seed := crashSeed(t)
	c := &queueCrash{t: t, rng: rand.New(rand.NewPCG(seed, 0))}
	c.args = []string{"-addr", suite.FreeAddress(t), "-data", t.TempDir()}
	c.in = start(t, c.args...)
	began := time.Now()
	var made []*firedSchedule
	for i := range schedulesThere {
		made = append(made, c.fire(i))
	}
	stop := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() { c.submit(stop) })
	work.Go(func() { c.batch(stop) })
	c.crashes(began)
	close(stop)
	work.Wait()
	c.checkBatches()
	for _, s := range made {
		c.checkSchedule(s)
	}
	c.checkKeyed()
	c.in.stop()
}

// crashes kills the server a few times, and then again and again while a minute begins.
func (c *queueCrash) crashes(began time.Time) {
	for range 3 {
		c.kill(time.Duration(200+c.rng.IntN(800)) * time.Millisecond)
	}
	minute := began.Truncate(time.Minute).Add(time.Minute)
	if until := time.Until(minute) - 200*time.Millisecond; until > 0 {
		time.Sleep(until)
	}
	for range 4 {
		c.kill(time.Duration(c.rng.IntN(400)) * time.Millisecond)
	}
}

func (c *queueCrash) kill(after time.Duration) {
	time.Sleep(after)
	in := c.in
	in.end(syscall.SIGKILL)
	c.mu.Lock()
	defer c.mu.Unlock()
	eventually(c.t, "the port is free", func() bool { return suite.IsFree(c.t.Context(), c.args[1]) })
	c.in = start(c.t, c.args...)
}

// repeat makes a request with a key until it is answered, and returns the id.
func (c *queueCrash) repeat(key, path, body string) (id string) {
	for range 100 {
		c.mu.RLock()
		r := c.in.request(http.MethodPost, path, body)
		c.mu.RUnlock()
		r.Header.Set("Idempotency-Key", key)
		status, b, err := send(r)
		var made struct{ ID string }
		switch {
		case err != nil, status == http.StatusConflict, status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests:
			time.Sleep(10 * time.Millisecond)
		case status != http.StatusOK || json.Unmarshal(b, &made) != nil:
			c.t.Errorf("POST %s = %d %s", path, status, b)
			return ""
		default:
			return made.ID
		}
	}
	c.t.Errorf("POST %s is not answered", path)
	return ""
}

func (c *queueCrash) submit(stop <-chan struct{}) {
	for n := 0; n < 300 && !closed(stop); n++ {
		key := fmt.Sprint("key-", n)
		body := fmt.Sprintf(`{"input":{"key":%q},"queue":{"key":%q,"priority":%d,"retry":{"attempts":3}}}`, key, fmt.Sprint(n%3), n%10)
		c.keyed.Store(key, c.repeat(key, "/v2/echo/run", body))
		time.Sleep(20 * time.Millisecond)
	}
}

func (c *queueCrash) batch(stop <-chan struct{}) {
	for n := 0; n < 8 && !closed(stop); n++ {
		requests, fail := make([]map[string]any, batchSize), 0
		for i := range requests {
			input := map[string]any{"sleep_ms": i}
			if i%(n+3) == 0 {
				input["fail"] = "no"
				fail++
			}
			requests[i] = map[string]any{"input": input}
		}
		body, err := json.Marshal(map[string]any{"requests": requests, "finalize": true})
		if err != nil {
			c.t.Error(err)
		}
		c.batches.Store(c.repeat(fmt.Sprint("batch-", n), "/v2/echo/batch", string(body)), fail)
		time.Sleep(500 * time.Millisecond)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (c *queueCrash) checkBatches() {
	c.batches.Range(func(id, fail any) bool {
		var b struct{ RequestTotal, RequestCompleted, RequestFailed int }
		eventually(c.t, "a batch ends", func() bool {
			b = get[struct{ RequestTotal, RequestCompleted, RequestFailed int }](c.in, "GET", fmt.Sprint("/v2/echo/batch/", id), "", http.StatusOK)
			return b.RequestCompleted+b.RequestFailed == b.RequestTotal
		})
		if b.RequestTotal != batchSize || b.RequestFailed != fail.(int) {
			c.t.Errorf("batch %v is %+v, want %d of %d failed", id, b, fail, batchSize)
		}
		return true
	})
}

// inputs returns the jobs of the endpoint whose input has a member, by its value. Jobs of batches
// are not among them: their inputs have neither of the members.
func (c *queueCrash) inputs(member string) map[string][]string {
	ids := map[string][]string{}
	cursor := ""
	for {
		page := get[struct {
			Jobs   []struct{ ID, Input string }
			Cursor string
		}](c.in, "GET", "/v2/serverless/echo/jobs?limit=1000"+cursor, "", http.StatusOK)
		for _, j := range page.Jobs {
			if j.Input == "" {
				continue // a job that cannot run again has none
			}
			var in map[string]any
			if err := json.Unmarshal([]byte(j.Input), &in); err != nil {
				c.t.Errorf("input %q: %v", j.Input, err)
			}
			if v, ok := in[member]; ok {
				ids[fmt.Sprint(v)] = append(ids[fmt.Sprint(v)], j.ID)
			}
		}
		if page.Cursor == "" {
			return ids
		}
		cursor = "&cursor=" + page.Cursor
	}
}

// A firedSchedule fires each minute. A server keeps the last outcomes only: it is to be looked at
// more often than they are forgotten.
type firedSchedule struct {
	id, input string
	began     time.Time
	jobs      map[time.Time]string // of the minutes that were seen
}

// fire makes a schedule whose jobs have a number as input.
func (c *queueCrash) fire(n int) *firedSchedule {
	began := time.Now()
	body := fmt.Sprintf(`{"cron":"* * * * *","overlap":"allow","catchUp":"all","run":{"input":{"schedule":%d}}}`, n)
	id := get[struct{ ID string }](c.in, "POST", "/v2/echo/schedules", body, http.StatusCreated).ID
	return &firedSchedule{id: id, input: strconv.Itoa(n), began: began, jobs: map[time.Time]string{}}
}

// look notes the jobs of a schedule. That of a minute stays the same one.
func (c *queueCrash) look(s *firedSchedule) {
	var is struct {
		Outcomes []struct {
			At           time.Time
			Outcome, Job string
		}
	}
	eventually(c.t, "a schedule is answered", func() bool {
		status, b := c.in.do("GET", "/v2/echo/schedules/"+s.id, "")
		return status == http.StatusOK && json.Unmarshal(b, &is) == nil
	})
	for _, o := range is.Outcomes {
		if was, ok := s.jobs[o.At]; o.Outcome != "submitted" || o.Job == "" || ok && was != o.Job {
			c.t.Errorf("schedule %s: %+v, and it had the job %q", s.id, o, was)
		}
		s.jobs[o.At] = o.Job
	}
}

// checkSchedule holds the jobs that are there against the minutes that have begun.
func (c *queueCrash) checkSchedule(s *firedSchedule) {
	eventually(c.t, "each minute has an outcome", func() bool {
		c.look(s)
		return len(s.jobs) >= int(time.Now().Truncate(time.Minute).Sub(s.began.Truncate(time.Minute))/time.Minute)
	})
	want := maps.Clone(s.jobs)
	there := c.inputs("schedule")[s.input]
	c.look(s) // a minute may have begun since
	for _, id := range there {
		if !slices.Contains(slices.Collect(maps.Values(s.jobs)), id) {
			c.t.Errorf("schedule %s has made the job %s, and its minutes have %v", s.id, id, s.jobs)
		}
	}
	for at, id := range want {
		if kept := time.Since(at) < queue.RunRetention-slack; kept && !slices.Contains(there, id) {
			c.t.Errorf("schedule %s: the job %s of %v is not there", s.id, id, at)
		}
	}
}

func (c *queueCrash) checkKeyed() {
	there, n := c.inputs("key"), 0
	c.keyed.Range(func(key, id any) bool {
		if n++; id == "" || !slices.Equal(there[key.(string)], []string{id.(string)}) {
			c.t.Errorf("the submit %v has the job %q, and the jobs %q have its input", key, id, there[key.(string)])
		}
		return true
	})
	c.t.Logf("%d keyed submits", n)
}

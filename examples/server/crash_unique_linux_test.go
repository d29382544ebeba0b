package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/podyard/podyard/examples/server/demo"
	"github.com/podyard/podyard/internal/suite"
)

const (
	uniqueCallers = 64
	uniqueKills   = 4
)

// TestCrashesLeaveOneJobOfAUniqueKeyAndItsNewestInput kills the server while 64 callers submit under one unique
// key, and while others replace the input of the jobs of theirs:
//
//   - the key has one job, which every answer names
//   - the input of a job is the newest that was acknowledged, or the one after it, whose answer was lost
func TestCrashesLeaveOneJobOfAUniqueKeyAndItsNewestInput(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	seed := crashSeed(t)
	c := &queueCrash{t: t, rng: rand.New(rand.NewPCG(seed, 0))}
	config := file(t, `{"endpoints":[{"id":"`+tally+`","image":"`+demo.HelloImage+`","cpu":[{"id":"host","vcpuCount":2}],"workers":{"max":0}}]}`)
	c.args = []string{"-addr", suite.FreeAddress(t), "-data", t.TempDir(), "-config", config}
	c.in = start(t, c.args...)
	stop := make(chan struct{})
	var work sync.WaitGroup
	var mu sync.Mutex
	named := map[string]int{} // answers, by the job that they name
	for range uniqueCallers {
		work.Go(func() {
			c.until(stop, func() {
				if id := c.unique("one", "keep", 0); id != "" {
					mu.Lock()
					named[id]++
					mu.Unlock()
				}
			})
		})
	}
	replaced := make([]struct{ sent, acknowledged int }, 8)
	for i := range replaced {
		r := &replaced[i]
		work.Go(func() {
			c.until(stop, func() {
				r.sent++
				if c.unique(fmt.Sprint("newest-", i), "replace", r.sent) != "" {
					r.acknowledged = r.sent
				}
			})
		})
	}
	for range uniqueKills {
		c.kill(time.Duration(100+c.rng.IntN(700)) * time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond)
	close(stop)
	work.Wait()

	if len(named) != 1 {
		t.Errorf("PODYARD_SEED=%d: answers under one key name %d jobs, want one: %v", seed, len(named), named)
	}
	type row struct {
		ID    string
		Input struct {
			Key string
			N   int
		}
	}
	list := get[struct{ Requests []row }](c.in, "GET", "/v2/"+tally+"/requests?full=true&limit=100", "", http.StatusOK)
	jobs := map[string][]row{}
	for _, j := range list.Requests {
		jobs[j.Input.Key] = append(jobs[j.Input.Key], j)
	}
	if n := len(jobs["one"]); n != 1 || named[jobs["one"][0].ID] == 0 {
		t.Errorf("PODYARD_SEED=%d: the key has the jobs %+v, and the answers name %v; want one", seed, jobs["one"], named)
	}
	answers := 0
	for i, r := range replaced {
		answers += r.acknowledged
		of := jobs[fmt.Sprint("newest-", i)]
		if len(of) != 1 {
			t.Errorf("PODYARD_SEED=%d: the key newest-%d has the jobs %+v, want one", seed, i, of)
		} else if n := of[0].Input.N; n < r.acknowledged || n > r.sent {
			t.Errorf("PODYARD_SEED=%d: the job of newest-%d has the input %d; %d was acknowledged, and %d was the last that was sent", seed, i, n, r.acknowledged, r.sent)
		}
	}
	t.Logf("%d kills, %v answers under one key, %d inputs replaced", uniqueKills, named, answers)
	c.in.stop()
}

// until repeats a call until stop is closed.
func (c *queueCrash) until(stop <-chan struct{}, call func()) {
	for {
		select {
		case <-stop:
			return
		default:
			call()
		}
	}
}

// unique submits a job that waits under a unique key. It returns "" if that was not answered with a job.
func (c *queueCrash) unique(key, conflict string, n int) (id string) {
	c.mu.RLock()
	r := c.in.request(http.MethodPost, "/v2/"+tally+"/run",
		fmt.Sprintf(`{"input":{"key":%q,"n":%d},"queue":{"unique":{"key":%[1]q,"while":"queued","onConflict":%[3]q}}}`, key, n, conflict))
	c.mu.RUnlock()
	status, b, err := send(r)
	var made struct{ ID string }
	switch {
	case err != nil, status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests:
		time.Sleep(20 * time.Millisecond)
	case status != http.StatusOK || json.Unmarshal(b, &made) != nil:
		c.t.Errorf("run under %s = %d %s", key, status, b)
	}
	return made.ID
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podyard/podyard/examples/server/demo"
	"github.com/podyard/podyard/serverless/queue"
)

// slack is what the server's milliseconds may differ from the client's time.
const slack = 5 * time.Millisecond

// A trackedJob is a job whose submission was acknowledged, and what its client knows of it.
type trackedJob struct {
	history
	endpoint, id string
	want         string // the output, when it completes
	fails        string // or its error, when it is to fail
	hook, sync   bool
	ttl          time.Duration // 0: a day
	called, had  time.Time     // of its submission: when it was asked for, and answered

	shortened, short time.Time // the ttl was set to a second: asked for, and answered
	cancelled        bool      // asked for
	retried          int       // asked for
	doubt            time.Time // until when a retry that had no answer may still come

	status  string // as it ended, if that is known
	result  string // the whole object
	results []string
	ended   time.Time // when that was seen first
	gone    bool
	round   int
}

// last is how it was seen last, for counting.
func (o *trackedJob) last() string {
	switch {
	case o.gone:
		return "gone"
	case o.status == "":
		return "open"
	}
	return o.status
}

// A crashClient submits jobs and does things with those it has.
type crashClient struct {
	*crashTest
	name string
	rng  *rand.Rand
	jobs []*trackedJob
	made int
}

// step does one thing. It reports false when there was no answer.
func (k *crashClient) step(ctx context.Context) bool {
	n := k.rng.IntN(100)
	if len(k.jobs) == 0 || n < 50 {
		return k.submit(ctx)
	}
	// Mostly one of the latest: it may still run.
	o := k.jobs[len(k.jobs)-1-k.rng.IntN(min(len(k.jobs), 6))]
	if n%5 == 0 {
		o = k.jobs[k.rng.IntN(len(k.jobs))]
	}
	switch {
	case n < 70:
		return k.look(ctx, o)
	case n < 82:
		return k.cancel(ctx, o)
	case n < 95:
		return k.retry(ctx, o)
	default:
		return k.shorten(ctx, o)
	}
}

// draw makes up a job, and the body of its submission.
func (k *crashClient) draw() (o *trackedJob, body string) {
	k.made++
	key := fmt.Sprintf("%s-%d", k.name, k.made)
	o = &trackedJob{endpoint: demo.EchoEndpoint, round: k.round}
	input := fmt.Sprintf(`{"key":%q}`, key)
	switch n := k.rng.IntN(20); {
	case n < 6:
		input = fmt.Sprintf(`{"key":%q,"sleep_ms":%d}`, key, k.rng.IntN(200))
	case n < 10:
		o.fails = "it is " + key
		input = fmt.Sprintf(`{"fail":%q}`, o.fails)
	case n < 12:
		input, o.want = fmt.Sprintf(`{"chunks":2,"key":%q}`, key), `[{"chunk":0},{"chunk":1}]`
	case n < 14:
		o.endpoint, input, o.want = demo.HelloEndpoint, fmt.Sprintf(`{"name":%q}`, key), fmt.Sprintf(`{"greeting":"hello, %s"}`, key)
	}
	if k.python && k.rng.IntN(20) == 0 {
		o.endpoint, o.fails = pyEndpoint, ""
		input, o.want = fmt.Sprintf(`{"key":%q}`, key), fmt.Sprintf(`{"key": %q}`, key) // as Python writes it
	}
	if o.want == "" {
		o.want = input
	}
	body = `{"input":` + input
	if k.rng.IntN(3) == 0 {
		o.hook = true
		body += fmt.Sprintf(`,"webhook":%q`, k.mail.urls[k.rng.IntN(len(k.mail.urls))])
	}
	switch k.rng.IntN(12) {
	case 0:
		o.ttl = 10 * time.Second
		body += `,"policy":{"ttl":10000}`
	case 1:
		o.sync = true
	}
	return o, body + "}"
}

func (k *crashClient) submit(ctx context.Context) bool {
	o, body := k.draw()
	path := "/v2/" + o.endpoint + "/run"
	if o.sync {
		path += "sync?wait=1000"
	}
	o.called = time.Now()
	code, b, err := k.do(ctx, "POST", path, body)
	o.had = time.Now()
	if err != nil {
		return false
	}
	var j job
	if err := json.Unmarshal(b, &j); err != nil || code != http.StatusOK || j.ID == "" {
		k.violation(o, "%s is answered with %d %s", path, code, b)
		return true
	}
	o.id = j.ID
	o.note(k.round, "%s %s: %s", path, body, b)
	k.jobs = append(k.jobs, o)
	if o.sync {
		k.saw(o, b)
	}
	return true
}

func (k *crashClient) cancel(ctx context.Context, o *trackedJob) bool {
	o.cancelled = true
	code, b, err := k.do(ctx, "POST", "/v2/"+o.endpoint+"/cancel/"+o.id, "")
	o.note(k.round, "cancel: %d %s %v", code, b, err)
	var j job
	switch {
	case err != nil:
		return false
	case code == http.StatusNotFound:
		k.lacks(o, time.Now())
	case json.Unmarshal(b, &j) != nil || code != http.StatusOK:
		k.violation(o, "cancel is answered with %d %s", code, b)
	case o.inDoubt():
	case o.status != "" && j.Status != o.status:
		k.violation(o, "it was %s, and cancel says it is %s", o.status, j.Status)
	default:
		o.status = j.Status
	}
	return true
}

// retry runs a job that failed once more. What was known of its end is not so any more.
func (k *crashClient) retry(ctx context.Context, o *trackedJob) bool {
	if o.status != "FAILED" || o.sync || o.retried > 100 {
		return k.look(ctx, o)
	}
	o.retried++
	o.status, o.result, o.ended = "", "", time.Time{}
	code, b, err := k.do(ctx, "POST", "/v2/"+o.endpoint+"/retry/"+o.id, "")
	o.note(k.round, "retry: %d %s %v", code, b, err)
	switch {
	case err != nil:
		if k.several {
			o.doubt = time.Now().Add(doubtFor)
		}
		return false
	case code == http.StatusNotFound:
		k.lacks(o, time.Now())
	case code != http.StatusOK:
		k.violation(o, "retry of a FAILED job is answered with %d %s", code, b)
	}
	return true
}

// shorten lets a job end its life in a second.
func (k *crashClient) shorten(ctx context.Context, o *trackedJob) bool {
	if o.ttl != 0 || o.sync || !o.shortened.IsZero() {
		return k.look(ctx, o)
	}
	o.shortened = time.Now()
	code, b, err := k.do(ctx, "GET", "/v2/"+o.endpoint+"/status/"+o.id+"?ttl=1000", "")
	o.note(k.round, "status?ttl=1000: %d %s %v", code, b, err)
	if err != nil {
		return false
	}
	switch {
	case code == http.StatusNotFound: // a server that was killed had done it, and another one was asked again
		k.lacks(o, time.Now())
		return true
	case code != http.StatusOK:
		k.violation(o, "status?ttl=1000 is answered with %d %s", code, b)
		return true
	}
	o.short = time.Now()
	k.saw(o, b)
	return true
}

// look asks for the status and holds it to what is known.
func (k *crashClient) look(ctx context.Context, o *trackedJob) bool {
	asked := time.Now()
	code, b, err := k.do(ctx, "GET", "/v2/"+o.endpoint+"/status/"+o.id, "")
	switch {
	case err != nil:
		return false
	case code == http.StatusNotFound:
		k.lacks(o, time.Now())
	case code != http.StatusOK:
		k.violation(o, "status is answered with %d %s", code, b)
	case o.gone:
		k.violation(o, "it was gone and is back: %s", b)
	case o.over(asked):
		k.violation(o, "its time was over at %v and it is there: %s", asked, b)
	default:
		k.saw(o, b)
	}
	return true
}

func (o *trackedJob) inDoubt() bool { return time.Now().Before(o.doubt) }

// lacks is a 404 at an instant.
func (k *crashClient) lacks(o *trackedJob, at time.Time) {
	if !o.gone && !o.mayEnd(at) {
		k.violation(o, "it is lost: its time was not over at %v", at)
	}
	o.gone = true
}

// mayEnd reports whether its ttl or retention may be over.
func (o *trackedJob) mayEnd(at time.Time) bool {
	return o.ttl != 0 && !at.Before(o.called.Add(o.ttl-slack)) ||
		!at.Before(o.called.Add(o.retention()-slack)) ||
		!o.shortened.IsZero() && !at.Before(o.shortened.Add(time.Second-slack))
}

// over reports whether one of them is.
func (o *trackedJob) over(at time.Time) bool {
	return o.ttl != 0 && at.After(o.had.Add(o.ttl+slack)) ||
		!o.ended.IsZero() && at.After(o.ended.Add(o.retention()+slack)) ||
		!o.short.IsZero() && at.After(o.short.Add(time.Second+slack))
}

func (o *trackedJob) retention() time.Duration {
	if o.sync {
		return queue.MinSyncRetention
	}
	return queue.RunRetention
}

// saw notes the job object, which may be no other than before when it had ended.
func (k *crashClient) saw(o *trackedJob, object []byte) {
	var j struct {
		ID, Status, Error string
		Output            json.RawMessage
	}
	if err := json.Unmarshal(object, &j); err != nil || j.ID != o.id {
		k.violation(o, "not its job object: %s: %v", object, err)
		return
	}
	ended := j.Status != "IN_QUEUE" && j.Status != "IN_PROGRESS"
	switch {
	case o.inDoubt():
		return
	case !ended && o.status == "":
		return
	case o.status != "" && j.Status != o.status, o.result != "" && plain(object) != o.result:
		o.note(k.round, "was %s %s", o.status, o.result)
		k.violation(o, "it had ended, and is another now: %s", object)
		return
	case j.Status == "COMPLETED" && string(j.Output) == o.want && o.fails == "":
	case j.Status == "FAILED" && j.Error == o.fails && o.fails != "":
	case j.Status == "CANCELLED" && o.cancelled:
	case j.Status == "FAILED" && strings.HasPrefix(j.Error, "harmful: ") && k.round-o.round >= queue.MaxRestarts-1:
	// Each of several servers that had it was killed, or had claimed it when the database stopped.
	case j.Status == "FAILED" && strings.HasPrefix(j.Error, "worker lost: ") && k.several && k.round-o.round >= queue.MaxDeliveries-1:
	default:
		k.violation(o, "nothing makes it end so: %s", object)
		return
	}
	if o.result == "" {
		o.note(k.round, "seen: %s", object)
		o.status, o.result, o.ended = j.Status, plain(object), time.Now()
		k.count(o, o.result)
	}
}

// count holds an order to one result, and another one for each retry.
func (c *crashTest) count(o *trackedJob, result string) {
	if slices.Contains(o.results, result) {
		return
	}
	if o.results = append(o.results, result); len(o.results) > 1+o.retried {
		c.violation(o, "it has %d results: %v", len(o.results), o.results)
	}
}

// plain is a job object without its input and its webhook: that of a webhook is that of its status then.
func plain(object []byte) string {
	members := map[string]any{}
	if err := json.Unmarshal(object, &members); err != nil {
		return string(object)
	}
	delete(members, "input")
	delete(members, "webhook")
	b, err := json.Marshal(members)
	if err != nil {
		return string(object)
	}
	return string(b)
}

// audit looks at the latest jobs and some of the others.
func (k *crashClient) audit(some int) {
	for _, o := range k.jobs {
		if o.round >= k.round-1 || some >= len(k.jobs) || k.rng.IntN(len(k.jobs)) < some {
			if !k.answered(func() bool { return k.look(k.t.Context(), o) }) {
				k.t.Errorf("the server does not answer")
				return
			}
		}
	}
}

// open is an order that has not ended, or whose webhook has not come. A worker of hello may
// have been given a job without hearing of it: unless all is asked for, such a job is left.
func (k *crashClient) open(all bool) *trackedJob {
	for _, o := range k.jobs {
		if o.status == "" && !o.gone {
			k.look(k.t.Context(), o)
			if o.status == "" && !o.gone && (all || o.endpoint != demo.HelloEndpoint) {
				return o
			}
		}
		if o.hook && o.status != "" && !k.mail.has(o) {
			return o
		}
	}
	return nil
}

// A webhookReceiver gets webhooks, at several addresses: of one, few come at once.
type webhookReceiver struct {
	urls    []string
	mu      sync.Mutex
	records map[string]*webhookRecord // by job
}

// A webhookRecord is what came for a job.
type webhookRecord struct {
	count   int
	objects []string // as plain makes them, each once
	status  map[string]bool
}

func newMailbox(t *testing.T) *webhookReceiver {
	m := &webhookReceiver{records: map[string]*webhookRecord{}}
	for range 4 {
		srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if b, err := io.ReadAll(r.Body); err == nil {
				m.put(t, b)
			}
		}))
		t.Cleanup(srv.Close)
		m.urls = append(m.urls, srv.URL)
	}
	return m
}

func (m *webhookReceiver) put(t *testing.T, object []byte) {
	var j job
	if err := json.Unmarshal(object, &j); err != nil {
		t.Errorf("a webhook brings %s: %v", object, err)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.records[j.ID]
	if l == nil {
		l = &webhookRecord{status: map[string]bool{}}
		m.records[j.ID] = l
	}
	l.count++
	l.status[j.Status] = true
	if s := plain(object); !slices.Contains(l.objects, s) {
		l.objects = append(l.objects, s)
	}
}

// has reports whether the end of a job, as its client knows it, was posted.
func (m *webhookReceiver) has(o *trackedJob) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.records[o.id]
	return l != nil && (o.result != "" && slices.Contains(l.objects, o.result) || o.result == "" && l.status[o.status])
}

// check holds what was posted to what clients know: no job ended twice.
func (m *webhookReceiver) check(c *crashTest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := map[string]bool{}
	for _, k := range c.clients {
		for _, o := range k.jobs {
			known[o.id] = true
			if l := m.records[o.id]; l != nil {
				for _, s := range l.objects {
					c.count(o, s)
				}
			}
		}
	}
	for id, l := range m.records {
		if !known[id] && len(l.objects) > 1 { // its submission had no answer, and nothing was done with it
			c.violation(history(l.objects), "job %s ended more than once", id)
		}
	}
}

package serverless_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
)

// A chaosRun is a service over a queue that fails at times, with workers of both kinds that die,
// fail, release jobs and do not stop, and users who cancel, retry and purge.
type chaosRun struct {
	*testing.T
	s *serverless.Service
	q *faultyQueue

	mu        sync.Mutex
	rnd       *rand.Rand
	delivered map[string]int // delivery id: answers with 2xx
}

func (u *chaosRun) intn(n int) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.rnd.IntN(n)
}

// upTo returns a random duration of whole milliseconds.
func (u *chaosRun) upTo(d time.Duration) time.Duration {
	return time.Duration(u.intn(int(d.Milliseconds()))) * time.Millisecond
}

// sleepContext sleeps unless ctx ends.
func sleepContext(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// TestNoJobIsLostWhateverFails prints its seed; PODYARD_SEED replays it.
func TestNoJobIsLostWhateverFails(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if v, err := strconv.ParseUint(os.Getenv("PODYARD_SEED"), 10, 64); err == nil {
		seed = v
	}
	t.Logf("PODYARD_SEED=%d", seed)
	synctest.Test(t, func(t *testing.T) {
		u := &chaosRun{T: t, q: newFaultyQueue(), rnd: rand.New(rand.NewPCG(seed, 1)), delivered: map[string]int{}}
		u.s = serviceOn(t, u.q, &serverless.Options{Sender: senderFunc(u.send)})
		setQueue(t, u.s, "echo", endpoints.QueueUpdate{PerKey: new(3), Ageing: new(10 * time.Second)})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 2 {
			o := &serverless.ServeOptions{ID: serverless.WorkerID(fmt.Sprint("local-", i)), Concurrency: 3}
			serve(t, u.s, u.work, o)
		}
		for i := range 4 {
			wg.Go(func() { u.remote(ctx, i) })
		}
		bad, calm := context.WithCancel(ctx)
		wg.Go(func() { u.outages(bad) })
		refs := u.users()
		calm()
		time.Sleep(10 * time.Minute) // an execution timeout, three leases, the attempts of a webhook
		synctest.Wait()
		u.check(refs)
		cancel()
		wg.Wait()
	})
}

func (u *chaosRun) send(_ context.Context, d *serverless.Delivery) (int, error) {
	time.Sleep(u.upTo(5 * time.Second))
	if d.Tries < 2 && u.intn(3) == 0 {
		return 503, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.delivered[d.ID]++
	return 200, nil
}

func (u *chaosRun) work(ctx context.Context, k *serverless.Task) ([]byte, error) {
	if u.intn(4) == 0 {
		_ = k.Progress(ctx, []byte(`"half"`))
		_ = k.Emit(ctx, []byte(`"piece"`))
	}
	d := u.upTo(40 * time.Second)
	switch u.intn(10) {
	case 0:
		sleepContext(ctx, d)
		return nil, errors.New("no luck")
	case 1:
		panic("no luck either")
	case 2:
		time.Sleep(d) // hears nothing
	default:
		sleepContext(ctx, d)
	}
	return k.Input, nil
}

// remote is a worker in another process: when it dies, another one comes.
func (u *chaosRun) remote(ctx context.Context, place int) {
	for life := 0; ctx.Err() == nil; life++ {
		w := serverless.WorkerID(fmt.Sprintf("remote-%d-%d", place, life))
		for ctx.Err() == nil {
			poll, stop := context.WithTimeout(ctx, 20*time.Second)
			jobs, err := u.s.Take(poll, "echo", w, 1+u.intn(2))
			stop()
			if err != nil {
				sleepContext(ctx, time.Second)
				continue
			}
			if !u.do(ctx, w, jobs) {
				break // it died, or fell silent for long
			}
		}
	}
}

// do runs jobs one after another, pinging; false when the worker dies of it.
func (u *chaosRun) do(ctx context.Context, w serverless.WorkerID, jobs []serverless.Job) bool {
	for i, j := range jobs {
		var have []serverless.JobID
		for _, j := range jobs[i:] {
			have = append(have, j.ID)
		}
		for range u.intn(5) {
			sleepContext(ctx, 9*time.Second)
			_ = u.s.Ping(ctx, "echo", w, have)
		}
		op := queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Worker: w, Status: serverless.Completed, Payload: j.Input}
		switch u.intn(12) {
		case 0:
			return false
		case 1:
			sleepContext(ctx, time.Minute) // it loses the job, and reports it all the same
		case 2:
			op = queue.Op{Ref: j.Ref, Kind: queue.OpRelease, Worker: w}
		case 3:
			op.Status, op.Payload, op.Error = serverless.Failed, nil, "no luck"
		case 4:
			_ = u.s.ReportUnhealthy(ctx, "echo", w, "broken")
			return false
		}
		for u.s.Report(ctx, op) != nil && u.intn(2) == 0 {
			sleepContext(ctx, time.Second)
		}
	}
	return true
}

// outages makes parts of the queue, or all of it, fail for a while, and drops events.
func (u *chaosRun) outages(ctx context.Context) {
	methods := []string{"all", "Apply", "Claim", "Expire", "Get", "Stats", "Record", "Deliveries", "NextDelivery", "Watch"}
	for ctx.Err() == nil {
		sleepContext(ctx, u.upTo(20*time.Second))
		m := methods[u.intn(len(methods))]
		switch u.intn(4) {
		case 0:
			u.q.mute(true)
			sleepContext(ctx, u.upTo(15*time.Second))
			u.q.mute(false)
		case 1:
			u.q.failCalls(m, always)
			sleepContext(ctx, u.upTo(15*time.Second))
			u.q.failCalls(m, 0)
		case 2:
			u.q.failCalls(m, 1+u.intn(3))
		default:
			u.q.loseAnswers([]string{"Apply", "Claim", "Record"}[u.intn(3)], 1+u.intn(3))
		}
	}
	for _, m := range methods {
		u.q.failCalls(m, 0)
		u.q.loseAnswers(m, 0)
	}
	u.q.mute(false)
}

// drawQueue makes up a place in the queue. Places of keys that are not freed would block others.
func (u *chaosRun) drawQueue() (o serverless.QueueOptions) {
	if u.intn(2) == 0 {
		o.Key = new(fmt.Sprint("key-", u.intn(3)))
	}
	if u.intn(2) == 0 {
		o.Priority = new(u.intn(queue.MaxPriority + 1))
	}
	if u.intn(2) == 0 {
		p := serverless.DefaultRetry()
		p.Attempts, p.Delay, p.MaxDelay, p.Timeouts = 3, u.upTo(5*time.Second), 20*time.Second, u.intn(2) == 0
		o.Retry = &p
	}
	return o
}

func (u *chaosRun) users() (refs []serverless.Ref) {
	for i := range 600 {
		r := serverless.Request{Input: fmt.Appendf(nil, `{"n":%d}`, i), Webhook: fmt.Sprintf("https://r%d.example/", i%7)}
		withTimeout(5*time.Second + u.upTo(time.Minute))(&r)
		r.Queue = u.drawQueue()
		if u.intn(5) == 0 {
			withTTL(10*time.Second + u.upTo(time.Minute))(&r)
		}
		if j, err := u.s.Submit(u.Context(), "alice", "echo", r); err == nil {
			refs = append(refs, j.Ref)
		} else if !errors.Is(err, errInjected) {
			u.Errorf("Submit = %v", err)
		}
		time.Sleep(u.upTo(3 * time.Second))
		if len(refs) == 0 {
			continue
		}
		ref := refs[u.intn(len(refs))]
		switch u.intn(12) {
		case 0:
			_, _ = u.s.Cancel(u.Context(), "alice", ref)
		case 1, 2, 3, 4:
			_, _ = u.s.Retry(u.Context(), "alice", ref)
		case 5:
			if u.intn(10) == 0 {
				_, _ = u.s.Purge(u.Context(), "alice", "echo")
			}
		}
	}
	return refs
}

func (u *chaosRun) check(refs []serverless.Ref) {
	ends := map[string]int{}
	for _, ref := range refs {
		j, err := u.s.Get(u.Context(), "alice", ref)
		if errors.Is(err, serverless.ErrNotFound) {
			ends["gone"]++
			continue
		}
		if err != nil || !j.Status.Terminal() {
			u.Errorf("job %s is %v by %q, %v, ten minutes after the last trouble", ref.ID, j.Status, j.Worker, err)
			continue
		}
		ends[j.Status.String()]++
		if j.Status == serverless.Completed && string(j.Output) != string(j.Input) {
			u.Errorf("job %s has the output %s of another run, input %s", ref.ID, j.Output, j.Input)
		}
		if u.delivered[queue.DeliveryID(ref, j.Run)] == 0 {
			u.Errorf("nobody was told that job %s is %v", ref.ID, j.Status)
		}
	}
	h, err := u.s.Health(u.Context(), "echo")
	if err != nil || h.Jobs.Queued != 0 || h.Jobs.Running != 0 || h.Workers.Running != 0 {
		u.Errorf("health %+v, %v, want nothing queued or running", h, err)
	}
	u.Logf("%v, %d given to another worker", ends, h.Jobs.Retried)
}

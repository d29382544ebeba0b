package serverless

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/joblog"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/workers"
)

// ErrNoJobLogs is returned where the lines of jobs are not kept.
var ErrNoJobLogs = problem.New(problem.NotFound, "the lines of jobs are not kept here")

const (
	lateLines  = 5 * time.Second  // how long lines of a job may come after its end
	idleTail   = 10 * time.Second // how long the output of a worker without a job is still read
	retryTail  = time.Second      // between two attempts to read the output of a worker
	levelOfLog = "INFO"           // of Task.Log
)

// JobLog returns what the runs of a job of owner have printed: the newest joblog.MaxBytes. A job that has
// printed nothing has an empty log. Errors are ErrNoJobLogs, and those of GetState.
func (s *Service) JobLog(ctx context.Context, owner string, ref Ref) (joblog.Log, error) {
	if s.logs == nil {
		return joblog.Log{}, ErrNoJobLogs
	}
	if _, err := s.GetState(ctx, owner, ref); err != nil {
		return joblog.Log{}, err
	}
	return s.logs.Get(ctx, ref)
}

// newLogs returns nil where o has no JobLogs.
func (s *Service) newLogs(o *Options) *joblog.Service {
	if o.JobLogs == nil {
		return nil
	}
	lo := joblog.Options{Clock: s.clock, Logger: s.log, There: s.thereAre}
	if o.Deterministic {
		lo.There = nil // every deletion is seen here, and nothing is done that nothing has caused
	}
	return joblog.New(o.JobLogs, &lo)
}

// thereAre reports which jobs of an endpoint are kept.
func (s *Service) thereAre(ctx context.Context, endpoint string, ids []JobID) (map[JobID]bool, error) {
	there := make(map[JobID]bool, len(ids))
	for j, err := range s.queue.List(ctx, s.now(), queue.ListQuery{Endpoint: endpoint, IDs: ids}) {
		if err != nil {
			return nil, err
		}
		there[j.ID] = true
	}
	return there, nil
}

// printed adds a line of a job that a worker of Serve runs.
func (s *Service) printed(j *Job, text string) {
	if s.logs != nil {
		s.logs.Add(j.Ref, j.Owner, joblog.Line{At: s.clock.Now().UTC(), Level: levelOfLog, Text: text})
	}
}

// jobMoved returns what is told of jobs that were deleted, or that have left their workers. Nil: nothing.
func (s *Service) jobMoved() func(Ref, queue.Effect) {
	if s.logs == nil {
		return nil
	}
	return func(ref Ref, e queue.Effect) {
		if e&queue.Delete != 0 {
			s.logs.Gone(ref)
		}
		if s.tails != nil && e&(queue.EvDone|queue.EvStop|queue.DropOutput|queue.PutLease) != 0 {
			s.tails.ended(ref)
		}
	}
}

// tails read the output of the workers of the fleet while they have jobs, and add its lines to the logs
// of these jobs.
type tails struct {
	s     *Service
	start chan workers.Key

	mu   sync.Mutex
	of   map[workers.Key]*tail
	held map[Ref]workers.Key // the worker that got a job last
}

// A tail is the output of one worker.
type tail struct {
	jobs  map[JobID]*tailed
	after fleet.LogLine // the last line that was read; zero: none
}

// A tailed is a job that a worker has, or had just now.
type tailed struct {
	owner string
	until time.Time // lines are taken until then; zero: the worker has the job
}

// newTails returns nil where no lines of workers can be read.
func (s *Service) newTails(o *Options) *tails {
	if _, ok := fleet.As[fleet.WorkerLogs](o.Fleet); !ok || s.logs == nil || s.deterministic {
		return nil
	}
	return &tails{s: s, start: make(chan workers.Key, 1024), of: map[workers.Key]*tail{}, held: map[Ref]workers.Key{}}
}

// took records jobs that a worker has got. Nothing waits: where so many workers begin at once that the
// channel is full, the next job of the worker starts the reading.
func (t *tails) took(k workers.Key, jobs []Job, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.of[k]
	if w == nil {
		w = &tail{jobs: map[JobID]*tailed{}, after: fleet.LogLine{At: now}}
		select {
		case t.start <- k:
			t.of[k] = w
		default:
			return
		}
	}
	for i := range jobs {
		w.jobs[jobs[i].ID] = &tailed{owner: jobs[i].Owner}
		t.held[jobs[i].Ref] = k
	}
}

// ended records that a job is with its worker no more.
func (t *tails) ended(ref Ref) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, ok := t.held[ref]
	if !ok {
		return
	}
	delete(t.held, ref)
	if j := t.of[k].jobs[ref.ID]; j != nil {
		j.until = t.s.clock.Now().Add(lateLines)
	}
}

// events ends jobs that other servers have seen end.
func (t *tails) events(evs []queue.Event) {
	for i := range evs {
		if k := evs[i].Kind; k == queue.EventDone || k == queue.EventStop {
			t.ended(evs[i].Ref)
		}
	}
}

// check ends the jobs that the worker no longer has: their events may have been lost.
func (t *tails) check(ctx context.Context, k workers.Key) {
	var ids []JobID
	t.mu.Lock()
	for id, j := range t.of[k].jobs {
		if j.until.IsZero() {
			ids = append(ids, id)
		}
	}
	t.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	has := make(map[JobID]bool, len(ids))
	for j, err := range t.s.queue.List(ctx, t.s.now(), queue.ListQuery{Endpoint: k.Endpoint, IDs: ids}) {
		if err != nil {
			return // it is asked again
		}
		has[j.ID] = j.Status == InProgress && j.Worker == k.ID
	}
	until := t.s.clock.Now().Add(lateLines)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ids {
		if j := t.of[k].jobs[id]; j != nil && !has[id] && j.until.IsZero() {
			j.until = until
		}
	}
}

// run reads until ctx ends.
func (t *tails) run(ctx context.Context) {
	var reading sync.WaitGroup
	defer reading.Wait()
	for {
		select {
		case k := <-t.start:
			reading.Go(func() { t.read(ctx, k) })
		case <-ctx.Done():
			return
		}
	}
}

// read reads the output of a worker as long as it has jobs.
func (t *tails) read(ctx context.Context, k workers.Key) {
	for ctx.Err() == nil && !t.forget(k, false) {
		if !t.follow(ctx, k) {
			t.forget(k, true)
			return
		}
		clock.Nap(ctx, t.s.clock, t.s.clock.Now().Add(retryTail), nil)
	}
}

// follow reads the output of a worker until it is idle or gone. It reports whether there is any.
func (t *tails) follow(ctx context.Context, k workers.Key) bool {
	ctx, cancel := context.WithCancel(ctx)
	lines, _, kept := t.s.scaler.Log(ctx, k, t.from(k))
	if !kept {
		cancel()
		return false
	}
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() { t.untilIdle(ctx, k); cancel() })
	for line, err := range lines {
		if err != nil {
			break
		}
		t.line(k, line)
	}
	return true
}

// from returns where the reading of a worker begins or goes on.
func (t *tails) from(k workers.Key) fleet.LogQuery {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.of[k]
	return fleet.LogQuery{After: w.after.At, AfterSeq: w.after.Seq, Tail: -1, Follow: true}
}

// untilIdle returns when the worker has had no job for a while, or ctx ends.
func (t *tails) untilIdle(ctx context.Context, k workers.Key) {
	for ctx.Err() == nil && t.busy(k) {
		clock.Nap(ctx, t.s.clock, t.s.clock.Now().Add(idleTail), nil)
		t.check(ctx, k)
	}
}

// busy drops the jobs that have ended long enough ago, and reports whether others are left.
func (t *tails) busy(k workers.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	w, now := t.of[k], t.s.clock.Now()
	for id, j := range w.jobs {
		if !j.until.IsZero() && j.until.Before(now) {
			t.release(k, id)
		}
	}
	return len(w.jobs) > 0
}

// release forgets a job of a worker. The caller holds mu.
func (t *tails) release(k workers.Key, id JobID) {
	delete(t.of[k].jobs, id)
	if ref := (Ref{Endpoint: k.Endpoint, ID: id}); t.held[ref] == k {
		delete(t.held, ref)
	}
}

// forget ends the reading of a worker that has no jobs, or of any with always, and reports whether it did.
func (t *tails) forget(k workers.Key, always bool) bool {
	if t.busy(k) && !always {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.of[k]
	if len(w.jobs) > 0 && !always {
		return false
	}
	for id := range w.jobs {
		t.release(k, id)
	}
	delete(t.of, k)
	return true
}

// line adds a line of output to the log of the job that it names, if the worker has it.
func (t *tails) line(k workers.Key, line fleet.LogLine) {
	t.mu.Lock()
	w := t.of[k]
	w.after = line
	t.mu.Unlock()
	id, out, ok := jobLine(line.Text)
	if !ok {
		return
	}
	t.mu.Lock()
	j := w.jobs[id]
	t.mu.Unlock()
	if j != nil {
		out.At = line.At.UTC()
		t.s.logs.Add(Ref{Endpoint: k.Endpoint, ID: id}, j.owner, out)
	}
}

// jobLine reads a line that a stock worker prints for a job:
// {"requestId":"...","message":"...","level":"INFO"}.
func jobLine(text string) (id JobID, l joblog.Line, ok bool) {
	if !strings.HasPrefix(text, "{") || !strings.Contains(text, `"requestId"`) {
		return "", l, false
	}
	var line struct {
		RequestID string `json:"requestId"`
		Message   any    `json:"message"`
		Level     string `json:"level"`
	}
	if json.Unmarshal([]byte(text), &line) != nil || line.RequestID == "" {
		return "", l, false
	}
	message, isText := line.Message.(string)
	if !isText {
		b, err := json.Marshal(line.Message)
		if err != nil {
			return "", l, false
		}
		message = string(b)
	}
	return JobID(line.RequestID), joblog.Line{Level: line.Level, Text: message}, true
}

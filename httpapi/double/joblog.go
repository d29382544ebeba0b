package double

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// A JobRecord is the last known state of a job. It stays when the job is deleted.
type JobRecord struct {
	Seq       int             `json:"seq"`
	Endpoint  string          `json:"endpoint"`
	ID        string          `json:"id"`
	User      string          `json:"user"`
	Submitted time.Time       `json:"submitted"`
	Input     json.RawMessage `json:"input"`
	Webhook   string          `json:"webhook,omitempty"` // without secrets
	Status    string          `json:"status"`
	Worker    string          `json:"worker,omitempty"` // the last one
	Output    json.RawMessage `json:"output,omitempty"`
	Error     string          `json:"error,omitempty"`
	Gone      bool            `json:"gone,omitempty"` // deleted by its ttl before it ended
}

// jobsKept is how many records are kept, the latest ones.
const jobsKept = 10_000

// A jobLog keeps records of jobs.
type jobLog struct {
	queue serverless.JobQueue // without the wrapper
	now   func() serverless.Instant

	mu   sync.Mutex
	seq  int
	list []*JobRecord
	byID map[serverless.Ref]*JobRecord
}

func newJobLog(q serverless.JobQueue, now func() serverless.Instant) *jobLog {
	return &jobLog{queue: q, now: now, byID: map[serverless.Ref]*JobRecord{}}
}

func (l *jobLog) add(jobs []serverless.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range jobs {
		j := &jobs[i]
		l.seq++
		r := &JobRecord{
			Seq: l.seq, Endpoint: j.Endpoint, ID: string(j.ID), User: j.Owner, Submitted: j.Submitted.Time(),
			Input: j.Input, Webhook: redactURL(j.Webhook), Status: j.Status.String(),
		}
		l.list = append(l.list, r)
		l.byID[j.Ref] = r
	}
	for len(l.list) > jobsKept {
		old := l.list[0]
		delete(l.byID, serverless.Ref{Endpoint: old.Endpoint, ID: serverless.JobID(old.ID)})
		l.list = l.list[1:]
	}
}

// remove removes jobs that were not accepted.
func (l *jobLog) remove(jobs []serverless.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range jobs {
		if r := l.byID[jobs[i].Ref]; r != nil && r == l.list[len(l.list)-1] {
			l.list = l.list[:len(l.list)-1]
			delete(l.byID, jobs[i].Ref)
		}
	}
}

// refresh updates the record of a job. It holds the lock while it reads, so that an older state
// never replaces a newer one.
func (l *jobLog) refresh(ctx context.Context, ref serverless.Ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.byID[ref]; r != nil && !r.Gone {
		l.read(ctx, ref, r)
	}
}

// read updates a record. The caller holds the lock.
func (l *jobLog) read(ctx context.Context, ref serverless.Ref, r *JobRecord) {
	j, err := l.queue.Get(ctx, l.now(), ref)
	if err != nil {
		r.Gone = true
		return
	}
	r.Status, r.Worker, r.Output, r.Error = j.Status.String(), string(j.Worker), j.Output, j.ErrorText()
}

// events refreshes the jobs of the events.
func (l *jobLog) events(ctx context.Context, evs []queue.Event) {
	for i := range evs {
		if e := &evs[i]; e.Kind == queue.EventDone || e.Kind == queue.EventReady {
			l.refresh(ctx, e.Ref)
		}
	}
}

// all returns every record. It reads the jobs that had not ended: an event comes after the
// answer that showed their end.
func (l *jobLog) all() []JobRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]JobRecord, 0, len(l.list))
	for _, r := range l.list {
		if s, ok := queue.ParseStatus(r.Status); ok && !s.Terminal() && !r.Gone {
			ref := serverless.Ref{Endpoint: r.Endpoint, ID: serverless.JobID(r.ID)}
			l.read(context.Background(), ref, r) //nolint:forbidigo // the queue is in memory, and waits for nothing
		}
		list = append(list, *r)
	}
	return list
}

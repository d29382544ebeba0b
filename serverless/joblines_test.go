package serverless_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/fleet"
)

// A printingFleet has workers whose output a test writes.
type printingFleet struct {
	fleet.Fleet

	mu    sync.Mutex
	lines []fleet.LogLine
	more  chan struct{}
	reads int
}

func (f *printingFleet) Unwrap() fleet.Fleet { return f.Fleet }

func (f *printingFleet) print(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines = append(f.lines, fleet.LogLine{At: time.Now(), Seq: uint64(len(f.lines) + 1), Text: text})
	close(f.more)
	f.more = make(chan struct{})
}

// WorkerLogs implements fleet.WorkerLogs.
func (f *printingFleet) WorkerLogs(ctx context.Context, _ string, _ serverless.WorkerID, q fleet.LogQuery) iter.Seq2[fleet.LogLine, error] {
	return func(yield func(fleet.LogLine, error) bool) {
		f.mu.Lock()
		f.reads++
		f.mu.Unlock()
		for n := 0; ctx.Err() == nil; {
			f.mu.Lock()
			lines, more := f.lines[n:], f.more
			f.mu.Unlock()
			for _, l := range lines {
				if n++; l.At.Before(q.After) || l.At.Equal(q.After) && l.Seq <= q.AfterSeq {
					continue
				}
				if !yield(l, nil) {
					return
				}
			}
			select {
			case <-more:
			case <-ctx.Done():
			}
		}
	}
}

func (f *printingFleet) readers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

func sdkLine(job serverless.JobID, text string) string {
	return fmt.Sprintf(`{"requestId":%q,"message":%q,"level":"INFO"}`, job, text)
}

// Lines of stock workers are those of the job that they name, while the worker has it and shortly after.
func TestALineOfAWorkerIsOfTheJobThatItNamesAndHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &printingFleet{more: make(chan struct{})}
		svc := newScaledService(t, image("quick", 0, 1), func(inner serverless.Fleet) serverless.Fleet {
			f.Fleet = inner
			return f
		})
		a, b := svc.submit(t, 1, false), svc.submit(t, 1, false)
		runs := func(j serverless.Job) {
			for svc.job(t, j).Status != serverless.InProgress {
				time.Sleep(100 * time.Millisecond)
			}
		}
		runs(a)
		f.print("a line of the program")
		f.print(`{"requestId":`)
		f.print(sdkLine(a.ID, "one"))
		f.print(sdkLine(b.ID, "of a job that is queued"))
		runs(b)
		f.print(sdkLine(a.ID, "late"))
		f.print(`{"requestId":"` + string(b.ID) + `","message":{"n":1}}`)
		time.Sleep(10 * time.Second)
		f.print(sdkLine(a.ID, "too late"))
		time.Sleep(30 * time.Second)
		for _, j := range []struct {
			ref  serverless.Ref
			want string
		}{{a.Ref, "[one late]"}, {b.Ref, `[{"n":1}]`}} {
			l, err := svc.JobLog(t.Context(), "alice", j.ref)
			list := []string{}
			for _, line := range l.Lines {
				list = append(list, line.Text)
			}
			if got := fmt.Sprint(list); err != nil || got != j.want {
				t.Errorf("the log of %s is %s, %v, want %s", j.ref.ID, got, err, j.want)
			}
		}
		if n := f.readers(); n != 1 {
			t.Errorf("the output of a worker with two jobs was opened %d times, want once, until it was idle", n)
		}
		c := svc.submit(t, 1, false)
		runs(c)
		f.print(sdkLine(c.ID, "again"))
		time.Sleep(5 * time.Second)
		if l, err := svc.JobLog(t.Context(), "alice", c.Ref); err != nil || len(l.Lines) != 1 {
			t.Errorf("after a pause a job's log is %+v, %v, want its line", l, err)
		}
	})
}

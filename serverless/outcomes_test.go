package serverless_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// told is what Outcomes were told, in order.
type told struct {
	mu   sync.Mutex
	list []string
}

func (x *told) add(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.list = append(x.list, fmt.Sprintf(format, args...))
}

func (x *told) outcomes() serverless.Outcomes {
	return serverless.Outcomes{
		AttemptFailed: func(_ context.Context, j serverless.Job, a queue.JobAttempt) {
			x.add("failed %s/%s of %s %d %t %v %s", j.Endpoint, j.Input, j.Owner, a.Number, a.Last, a.Status, a.Error)
		},
		JobEnded: func(_ context.Context, j serverless.Job) {
			x.add("ended %s/%s %v %s%s", j.Endpoint, j.Input, j.Status, j.Output, j.ErrorText())
		},
	}
}

// want compares what was told since the last call.
func (x *told) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	if diff := cmp.Diff(want, x.list); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	x.list = nil
}

func TestOutcomesAreToldOfEachAttemptThatFailsAndOfEachEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &told{}
		s := newService(t, &serverless.Options{Outcomes: x.outcomes()})
		serve(t, s, func(ctx context.Context, k *serverless.Task) ([]byte, error) {
			switch {
			case strings.Contains(string(k.Input), "slow"):
				<-ctx.Done()
			case strings.Contains(string(k.Input), "fail") && k.Attempt < 3:
				return nil, errors.New("no chance")
			}
			return []byte(`"done"`), nil
		}, nil)
		three := serverless.DefaultRetry()
		three.Attempts = 3
		ref := submitEcho(t, s, withInput(`{"fail":1}`), withRetry(three))
		if _, err := s.Wait(t.Context(), "alice", ref, time.Minute); err != nil {
			t.Fatal(err)
		}
		x.want(t, `failed echo/{"fail":1} of alice 1 false FAILED no chance`, `failed echo/{"fail":1} of alice 2 false FAILED no chance`, `ended echo/{"fail":1} COMPLETED "done"`)
		submitEcho(t, s, withInput(`{"fail":2}`))
		x.want(t, `failed echo/{"fail":2} of alice 1 true FAILED no chance`, `ended echo/{"fail":2} FAILED no chance`)
		submitEcho(t, s, withInput(`{"slow":3}`), withTimeout(5*time.Second))
		time.Sleep(5 * time.Second)
		x.want(t, `failed echo/{"slow":3} of alice 1 true TIMED_OUT execution timeout: the job ran longer than 5000 ms`,
			`ended echo/{"slow":3} TIMED_OUT execution timeout: the job ran longer than 5000 ms`)
		late := submitEcho(t, s, withInput(`{"late":4}`), func(r *serverless.Request) { r.Queue.StartAfter = new(time.Hour) })
		if _, err := s.Cancel(t.Context(), "alice", late); err != nil {
			t.Fatal(err)
		}
		x.want(t, `ended echo/ CANCELLED `)
	})
}

func TestALoggerGetsEachFailureWithItsError(t *testing.T) {
	for name, unlogged := range map[string]bool{"logged": false, "unlogged": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b bytes.Buffer
				log := slog.New(slog.NewJSONHandler(&b, nil))
				s := newService(t, &serverless.Options{Logger: log, Outcomes: serverless.Outcomes{Unlogged: unlogged}})
				serve(t, s, func(context.Context, *serverless.Task) ([]byte, error) { return nil, errors.New("no\nchance") }, nil)
				two := serverless.DefaultRetry()
				two.Attempts = 2
				ref := submitEcho(t, s, withRetry(two))
				if _, err := s.Wait(t.Context(), "alice", ref, time.Minute); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				var got []string
				for line := range strings.Lines(b.String()) {
					var l struct {
						Level, Msg, Job, User, Status, Err string
						Attempt, Attempts                  int
					}
					if err := json.Unmarshal([]byte(line), &l); err != nil {
						t.Fatal(err)
					}
					got = append(got, fmt.Sprint(l.Level, " ", l.Msg, " ", l.Job == string(ref.ID), " ", l.User, " ", l.Status, " ", l.Err, " ", l.Attempt, " of ", l.Attempts))
				}
				want := []string{"WARN attempt failed, another one follows true alice FAILED no\nchance 1 of 2", "ERROR job failed true alice FAILED no\nchance 2 of 2"}
				if unlogged {
					want = nil
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("log (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// What was to be told is told before Run returns, also by a function that takes long.
func TestRunReturnsAfterTheLastOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &told{}
		s := serverless.New(memory.NewJobs(), twoEndpoints(t), &serverless.Options{Outcomes: serverless.Outcomes{
			JobEnded: func(_ context.Context, j serverless.Job) {
				time.Sleep(time.Minute)
				x.add("%s %v", j.Owner, j.Status)
			},
		}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		for range 2 {
			if _, err := s.Cancel(t.Context(), "alice", submitEcho(t, s)); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		x.want(t, "alice CANCELLED", "alice CANCELLED")
	})
}

func TestAnInputThatDoesNotDecodeIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &told{}
		s := newService(t, &serverless.Options{Outcomes: x.outcomes()})
		w := serverless.JSON(func(context.Context, struct {
			Items int `json:"items"`
		}) (int, error) {
			return 0, nil
		})
		serve(t, s, w.Work, nil)
		three := serverless.DefaultRetry()
		three.Attempts = 3
		submitEcho(t, s, withInput(`{"items":"many"}`), withRetry(three))
		x.want(t, `failed echo/{"items":"many"} of alice 1 true FAILED input: "items" must be a whole number, not string`,
			`ended echo/{"items":"many"} FAILED input: "items" must be a whole number, not string`)
	})
}

func TestAStatusIsATextInJSON(t *testing.T) {
	for _, status := range []serverless.Status{serverless.InQueue, serverless.InProgress, serverless.Completed, serverless.Failed, serverless.Cancelled, serverless.TimedOut} {
		b, err := json.Marshal(map[string]any{"status": status})
		if err != nil || string(b) != `{"status":"`+status.String()+`"}` {
			t.Errorf("%v is %s, %v", status, b, err)
		}
		var back struct{ Status serverless.Status }
		if err := json.Unmarshal(b, &back); err != nil || back.Status != status {
			t.Errorf("%s is read as %v, %v", b, back.Status, err)
		}
	}
	if err := json.Unmarshal([]byte(`"DONE"`), new(serverless.Status)); err == nil {
		t.Error("DONE was read as a status")
	}
}

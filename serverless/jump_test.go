package serverless_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/schedules"
)

// What is due at an instant is done soon after a clock has jumped to it, whatever the loops are
// waiting for: half an hour as it seemed when they began to wait.
func TestNoLoopSleepsThroughAJumpOfTheClock(t *testing.T) {
	const jump = 30 * time.Minute
	for name, row := range map[string]struct {
		begin func(t *testing.T, s *serverless.Service)
		done  func(t *testing.T, s *serverless.Service, y *yard) bool
	}{
		"schedule": {
			func(t *testing.T, s *serverless.Service) {
				create(t, s, func(r *schedules.Settings) { r.Cron = new("30 0 * * *") })
			},
			func(t *testing.T, _ *serverless.Service, y *yard) bool { return jobsOf(t, y.queue) == 1 },
		},
		"delayed job": {
			func(t *testing.T, s *serverless.Service) {
				r := serverless.Request{Input: []byte(`{}`), Queue: serverless.QueueOptions{StartAfter: new(jump)}}
				if _, err := s.Submit(t.Context(), "alice", "echo", r); err != nil {
					t.Fatal(err)
				}
			},
			func(t *testing.T, s *serverless.Service, _ *yard) bool {
				return len(tryTake(t, s, "w")) == 1
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inYard(t, func(t *testing.T, y *yard) {
				c := &offClock{}
				y.clock = c
				s, _ := y.server()
				row.begin(t, s)
				time.Sleep(time.Second)
				c.by.Store(int64(jump))
				time.Sleep(clock.Longest + time.Second)
				synctest.Wait()
				if !row.done(t, s, y) {
					t.Errorf("%v after the clock has jumped past its instant it is not done", clock.Longest+time.Second)
				}
			})
		})
	}
}

func TestTheLogSaysThatTheClockWasSet(t *testing.T) {
	for by, want := range map[time.Duration]string{
		time.Hour: "the clock jumped forward, or this machine stood still", -time.Hour: "the clock was set back", time.Second: "",
	} {
		synctest.Test(t, func(t *testing.T) {
			y, c, log := newYard(t), &offClock{}, &strings.Builder{}
			s := serverless.New(y.queue, y.endpoints, &serverless.Options{Clock: c, Logger: slog.New(slog.NewTextHandler(log, nil))})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			time.Sleep(10 * time.Minute)
			c.by.Store(int64(by))
			time.Sleep(10 * time.Minute)
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			lines := strings.Count(log.String(), "level=WARN")
			if want == "" && lines != 0 || want != "" && (lines != 1 || !strings.Contains(log.String(), want) || !strings.Contains(log.String(), "by=1h0m")) {
				t.Errorf("a jump by %v: the log is %q, want %q", by, log.String(), want)
			}
		})
	}
}

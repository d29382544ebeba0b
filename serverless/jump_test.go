package serverless_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
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

// A delay counts from now on when the clock by which it began was ahead; an instant that the user gave
// is waited for.
func TestDelaysOfAClockThatWasAheadCountFromNowOn(t *testing.T) {
	const ahead, delay = time.Hour, 5 * time.Minute
	type row struct {
		name    string
		request func(now time.Time) serverless.Request
		fails   bool          // the first attempt, so that the delay is that of a retry
		ready   time.Duration // after the clock was set right, give or take a minute
	}
	input := []byte(`{}`)
	rows := []row{
		{"a time from the submit", func(time.Time) serverless.Request {
			return serverless.Request{Input: input, Queue: serverless.QueueOptions{StartAfter: new(delay)}}
		}, false, delay},
		{"an instant", func(now time.Time) serverless.Request {
			return serverless.Request{Input: input, Queue: serverless.QueueOptions{StartAt: now.Add(ahead / 2)}}
		}, false, ahead + ahead/2},
		{"the delay of a retry", func(time.Time) serverless.Request {
			return serverless.Request{Input: input, Queue: serverless.QueueOptions{Retry: &serverless.RetryPolicy{Attempts: 2, Delay: delay, MaxDelay: delay, Factor: 1}}}
		}, true, delay},
	}
	for _, r := range rows {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, with a restart: %v", r.name, restart), func(t *testing.T) {
				inYard(t, func(t *testing.T, y *yard) {
					c := &offClock{}
					c.by.Store(int64(ahead))
					y.clock = c
					s, stop := y.server()
					j, err := s.Submit(t.Context(), "alice", "echo", r.request(c.Now()))
					if err != nil {
						t.Fatal(err)
					}
					if r.fails {
						takeOne(t, s, "w")
						if err := s.Report(t.Context(), queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Worker: "w", Status: serverless.Failed, Error: "no"}); err != nil {
							t.Fatal(err)
						}
					}
					synctest.Wait()
					if restart {
						stop()
					}
					c.by.Store(0)
					if restart {
						s, _ = y.server()
					}
					began := time.Now()
					for time.Since(began) < 2*ahead && len(tryTake(t, s, "w")) == 0 {
						time.Sleep(10 * time.Second)
					}
					if took := time.Since(began); took < r.ready || took > r.ready+time.Minute {
						t.Errorf("ready %v after the clock was set right, want it after %v", took, r.ready)
					}
				})
			})
		}
	}
}

func TestTheStartSaysHowFarTheNewestJobIsFromTheClock(t *testing.T) {
	for by, want := range map[time.Duration]string{
		time.Hour:       `level=WARN msg="the store has jobs of the future: the clock was ahead then, or is behind now" by=1h0m`,
		-24 * time.Hour: `level=INFO msg="the newest job of the store is from before" by=24h0m0s`,
	} {
		synctest.Test(t, func(t *testing.T) {
			y, c, log := newYard(t), &offClock{}, &strings.Builder{}
			start := func() {
				s := serverless.New(y.queue, y.endpoints, &serverless.Options{Clock: c, Logger: slog.New(slog.NewTextHandler(log, nil))})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- s.Run(ctx) }()
				synctest.Wait()
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			start()
			if log.String() != "" {
				t.Errorf("a store without jobs: the log is %q", log.String())
			}
			c.by.Store(int64(by))
			submitEcho(t, serverless.New(y.queue, y.endpoints, &serverless.Options{Clock: c}), func(r *serverless.Request) { r.Policy.TTL = new(48 * time.Hour) })
			c.by.Store(0)
			start()
			if !strings.Contains(log.String(), want) || strings.Count(log.String(), "\n") != 1 {
				t.Errorf("jobs that are %v ahead: the log is %q, want %q", by, log.String(), want)
			}
		})
	}
}

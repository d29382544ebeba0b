package joblog_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/fault"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/joblog"
	"github.com/podyard/podyard/serverless/queue"
)

var ref = queue.Ref{Endpoint: "echo", ID: "job-1"}

func line(text string) joblog.Line {
	return joblog.Line{At: time.Now().UTC(), Level: "INFO", Text: text}
}

// run starts a service until the test ends.
func run(t *testing.T, store joblog.Store, o joblog.Options) *joblog.Service {
	s := joblog.New(store, &o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

func texts(l joblog.Log) (list []string) {
	for _, one := range l.Lines {
		list = append(list, one.Text)
	}
	return list
}

func wantTexts(t *testing.T, s *joblog.Service, want ...string) {
	t.Helper()
	l, err := s.Get(t.Context(), ref)
	if got := texts(l); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the lines are %q, %v, want %q", got, err, want)
	}
}

func TestLinesAreReadAtOnceAndWrittenWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewJobLogs()
		s := run(t, store, joblog.Options{})
		s.Add(ref, "alice", line("one"))
		s.Add(ref, "alice", line("two"))
		wantTexts(t, s, "one", "two")
		if _, err := store.Get(t.Context(), joblog.ID(ref)); !errors.Is(err, joblog.ErrNotFound) {
			t.Errorf("at once the store has %v, want ErrNotFound: lines of a second are one write", err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if l, err := store.Get(t.Context(), joblog.ID(ref)); err != nil || len(l.Lines) != 2 || l.Owner != "alice" {
			t.Errorf("after a second the store has %+v, %v, want both lines of alice", l, err)
		}
		s.Add(ref, "alice", line("three"))
		wantTexts(t, s, "one", "two", "three")
	})
}

func TestTheNewestLinesOfAJobAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t, memory.NewJobLogs(), joblog.Options{})
		for i := range 200 {
			s.Add(ref, "alice", line(fmt.Sprintf("%04d%s", i, strings.Repeat("x", 1000))))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		l, err := s.Get(t.Context(), ref)
		if err != nil || l.Size > joblog.MaxBytes || l.Size < joblog.MaxBytes-2000 || l.Dropped+len(l.Lines) != 200 || !strings.HasPrefix(l.Lines[len(l.Lines)-1].Text, "0199") {
			t.Errorf("kept are %d bytes in %d lines, %d were dropped, %v; want about %d bytes up to line 199, and 200 lines in all", l.Size, len(l.Lines), l.Dropped, err, joblog.MaxBytes)
		}
	})
}

func TestALineIsCutBetweenCharacters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t, memory.NewJobLogs(), joblog.Options{})
		s.Add(ref, "alice", joblog.Line{Level: strings.Repeat("L", 99), Text: "\xff" + strings.Repeat("€", joblog.MaxLine)})
		l, err := s.Get(t.Context(), ref)
		if err != nil || len(l.Lines) != 1 {
			t.Fatal(l, err)
		}
		if n := len(l.Lines[0].Text); n > joblog.MaxLine || n < joblog.MaxLine-3 || strings.TrimLeft(l.Lines[0].Text, "\uFFFD€") != "" || len(l.Lines[0].Level) != joblog.MaxLevel {
			t.Errorf("a line of %d bytes with a level of %d bytes is kept", n, len(l.Lines[0].Level))
		}
	})
}

func TestALogGoesWithItsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewJobLogs()
		var mu sync.Mutex
		kept := map[queue.JobID]bool{ref.ID: true, "other": true}
		there := func(context.Context, string, []queue.JobID) (map[queue.JobID]bool, error) {
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(kept), nil
		}
		s := run(t, store, joblog.Options{There: there})
		s.Add(ref, "alice", line("one"))
		s.Add(queue.Ref{Endpoint: "echo", ID: "other"}, "alice", line("one"))
		time.Sleep(2 * time.Second)
		s.Gone(ref)
		time.Sleep(2 * time.Second)
		if all, err := store.All(t.Context()); err != nil || len(all) != 1 || all[0].Job != "other" {
			t.Errorf("after the deletion of a job the store has %v, %v, want the log of the other", all, err)
		}
		mu.Lock()
		delete(kept, "other") // another process has deleted it
		mu.Unlock()
		time.Sleep(15 * time.Minute)
		if all, err := store.All(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("later the store has %v, %v, want nothing", all, err)
		}
	})
}

func TestErasingRemovesTheLogsOfOneUserOnOneEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewJobLogs()
		s := run(t, store, joblog.Options{})
		s.Add(ref, "alice", line("a"))
		s.Add(queue.Ref{Endpoint: "echo", ID: "bobs"}, "bob", line("b"))
		s.Add(queue.Ref{Endpoint: "other", ID: "alices"}, "alice", line("c"))
		time.Sleep(2 * time.Second)
		if err := s.Erase(t.Context(), "alice", "echo"); err != nil {
			t.Fatal(err)
		}
		all, err := store.All(t.Context())
		if err != nil || len(all) != 2 || all[0].Job == ref.ID || all[1].Job == ref.ID {
			t.Errorf("the store has %v, %v, want the two other logs", all, err)
		}
	})
}

func TestWhereAUserHasNoRoomTheOldestLogsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewJobLogs()
		store.Limit(budget.NewSet(budget.Users{Limits: budget.Limits{JobLogBytes: 10_000}}))
		s := run(t, store, joblog.Options{})
		for i := range 100 {
			s.Add(queue.Ref{Endpoint: "echo", ID: queue.JobID(fmt.Sprintf("job-%03d", i))}, "alice", line(strings.Repeat("x", 700)))
			time.Sleep(2 * time.Second)
		}
		all, err := store.All(t.Context())
		if err != nil || len(all) < 7 || len(all) > 10 || all[len(all)-1].Job != "job-099" || all[0].Job < "job-090" {
			t.Errorf("kept are %d logs, %v, want the newest that 10,000 bytes have room for", len(all), err)
		}
	})
}

func TestLinesWaitForAStoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fault.NewPlan(1, fault.Rule{Name: "away", Call: "jobLogs.Update"})
		inner := memory.NewJobLogs()
		s := run(t, fault.JobLogs(inner, p), joblog.Options{})
		s.Add(ref, "alice", line("one"))
		time.Sleep(5 * time.Second)
		s.Add(ref, "alice", line("two"))
		time.Sleep(5 * time.Second)
		p.Enable("away", false)
		time.Sleep(5 * time.Second)
		l, err := inner.Get(t.Context(), joblog.ID(ref))
		if got := texts(l); err != nil || fmt.Sprint(got) != "[one two]" {
			t.Errorf("after the store is back it has %q, %v, want both lines in order", got, err)
		}
	})
}

func TestTheEndOfRunWritesWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewJobLogs()
		s := joblog.New(store, nil)
		ctx, cancel := context.WithCancel(t.Context())
		s.Add(ref, "alice", line("last words"))
		cancel()
		_ = s.Run(ctx)
		if l, err := store.Get(t.Context(), joblog.ID(ref)); err != nil || len(l.Lines) != 1 {
			t.Errorf("the store has %+v, %v, want the line", l, err)
		}
	})
}

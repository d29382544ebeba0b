package serverless_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/schedules"
)

func declare(t *testing.T, s *serverless.Service, name string, change func(*schedules.Settings)) schedules.Schedule {
	t.Helper()
	v, err := s.Schedules().Declare(t.Context(), "alice", "echo", name, settings(change))
	if err != nil {
		t.Fatalf("Declare %q: %v", name, err)
	}
	synctest.Wait()
	return v
}

func TestADeclaredScheduleIsThereOnceHoweverManyCopiesDeclareIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t)
		var copies []*serverless.Service
		for range 4 {
			s, _ := y.server()
			copies = append(copies, s)
		}
		var all sync.WaitGroup
		for _, s := range copies {
			all.Go(func() {
				for range 2 {
					if _, err := s.Schedules().Declare(t.Context(), "alice", "echo", "hourly", settings(nil)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		time.Sleep(3*time.Hour + time.Minute)
		synctest.Wait()
		list, err := copies[0].Schedules().List(t.Context(), "alice", "echo")
		if err != nil || len(list) != 1 {
			t.Fatalf("%d schedules, %v, want one", len(list), err)
		}
		st, err := copies[0].Health(t.Context(), "echo")
		if err != nil || st.Jobs.Queued != 1 { // the first one has not ended, so the others are skipped
			t.Errorf("%d jobs are queued, %v, want one", st.Jobs.Queued, err)
		}
	})
}

// A program that serves no keys has schedules, too.
func TestADeclaredScheduleNeedsNoKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t)
		y.mayRun = func(context.Context, string, string) (bool, error) { return false, nil }
		s, _ := y.server()
		declared, created := declare(t, s, "hourly", nil), create(t, s, nil)
		time.Sleep(90 * time.Minute)
		wantOutcomes(t, s, declared.ID, "01:00 submitted")
		wantOutcomes(t, s, created.ID, "01:00 disabled")
	})
}

// Otherwise what somebody has put into it would go on when the key is gone with which they did.
func TestADeclaredScheduleWhoseJobsSomebodyHasChangedNeedsAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t)
		var deleted atomic.Bool // the key
		y.mayRun = func(context.Context, string, string) (bool, error) { return !deleted.Load(), nil }
		s, _ := y.server()
		always := func(r *schedules.Settings) { r.Overlap = new(schedules.OverlapAllow) }
		v := declare(t, s, "hourly", always)
		update := func(r schedules.Settings) {
			t.Helper()
			if _, err := s.Schedules().Update(t.Context(), "alice", "echo", v.ID, r); err != nil {
				t.Fatal(err)
			}
		}
		update(schedules.Settings{Run: []byte(`{"input":{"mine":true}}`)})
		time.Sleep(90 * time.Minute)
		deleted.Store(true)
		time.Sleep(time.Hour)
		wantOutcomes(t, s, v.ID, "01:00 submitted", "02:00 refused")
		declare(t, s, "hourly", always) // the program starts again
		time.Sleep(time.Hour)
		wantOutcomes(t, s, v.ID, "01:00 submitted", "02:00 refused", "03:00 submitted")
		update(schedules.Settings{Cron: new("30 * * * *")}) // what its jobs do is the program's still
		time.Sleep(time.Hour)
		wantOutcomes(t, s, v.ID, "01:00 submitted", "02:00 refused", "03:00 submitted", "04:30 submitted")
	})
}

func TestADeclarationReplacesTheSettingsOfTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t)
		s, stop := y.server()
		first := declare(t, s, "report", func(r *schedules.Settings) {
			r.TimeZone, r.Overlap, r.CatchUp = new("Europe/Berlin"), new(schedules.OverlapAllow), new(schedules.CatchUpLast)
		})
		time.Sleep(90 * time.Minute)
		synctest.Wait()
		stop()
		s, _ = y.server() // another version of the program
		second := declare(t, s, "report", func(r *schedules.Settings) { r.Cron, r.Run = new("30 4 * * *"), []byte(`{"input":{"b":2}}`) })
		if second.ID != first.ID || !second.Created.Equal(first.Created) || len(second.Outcomes) != 1 {
			t.Errorf("%+v is another schedule than %+v, or has lost its outcomes", second, first)
		}
		got := []any{second.Cron, string(second.Run), second.TimeZone, second.Overlap, second.CatchUp, second.Enabled}
		want := []any{"30 4 * * *", `{"input":{"b":2}}`, "UTC", schedules.OverlapSkip, schedules.CatchUpNone, true}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("settings (-want +got):\n%s", diff)
		}
		if _, err := s.Schedules().Update(t.Context(), "alice", "echo", first.ID, schedules.Settings{Enabled: new(bool)}); err != nil {
			t.Fatal(err)
		}
		if v := declare(t, s, "report", nil); v.Enabled {
			t.Error("a declaration has enabled what an operator has disabled")
		}
		if v := declare(t, s, "report", func(r *schedules.Settings) { r.Enabled = new(true) }); !v.Enabled {
			t.Error("a declaration that says so has not enabled the schedule")
		}
	})
}

func TestADeclarationThatChangesNothingDoesNotMoveTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newYard(t).server()
		hourly := declare(t, s, "hourly", nil)
		for range 5 { // a copy that starts again and again
			time.Sleep(50 * time.Minute)
			declare(t, s, "hourly", nil)
		}
		if diff := cmp.Diff([]string{"01:00 submitted", "02:00 skipped", "03:00 skipped", "04:00 skipped"}, outcomes(t, s, hourly.ID)); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
	})
}

func TestWhatIsNoLongerDeclaredIsListedAndRemovedOnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t)
		s, stop := y.server()
		declare(t, s, "old", nil)
		declare(t, s, "kept", nil)
		create(t, s, nil) // by hand: it is nobody's declaration
		for _, id := range []string{"one", "two"} {
			if err := s.EnsureEndpoint(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		s, _ = y.server()
		declare(t, s, "kept", nil)
		if err := s.EnsureEndpoint(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.DeclareEndpoint(t.Context(), "echo", endpoints.CreateRequest{}); err == nil {
			t.Error("an endpoint without an image was declared, and not ensured")
		}
		list, err := s.Schedules().Undeclared(t.Context())
		if err != nil || len(list) != 1 || list[0].Name != "old" {
			t.Fatalf("Undeclared = %+v, %v, want old", list, err)
		}
		var ids []string
		shared, err := s.UndeclaredEndpoints(t.Context())
		for _, e := range shared {
			ids = append(ids, e.ID)
		}
		if diff := cmp.Diff([]string{"echo", "other", "two"}, ids); diff != "" || err != nil {
			t.Errorf("UndeclaredEndpoints, %v (-want +got):\n%s", err, diff)
		}
		if err := s.Schedules().Undeclare(t.Context(), "alice", "echo", "old"); err != nil {
			t.Error(err)
		}
		if err := s.Schedules().Undeclare(t.Context(), "alice", "echo", "old"); !errors.Is(err, schedules.ErrNotFound) {
			t.Errorf("Undeclare of what is gone = %v, want ErrNotFound", err)
		}
		if list, err := s.Schedules().Undeclared(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("Undeclared = %+v, %v, want none", list, err)
		}
		if list, err := s.Schedules().List(t.Context(), "alice", "echo"); err != nil || len(list) != 2 {
			t.Errorf("%d schedules are left, %v, want the one that is declared and the one that was made by hand", len(list), err)
		}
	})
}

func TestADeclarationWithFaultsChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t)
		y.budgets = budget.NewSet(budget.Users{Limits: budget.Limits{Schedules: 1}})
		s, _ := y.server()
		before := declare(t, s, "report", nil)
		for name, r := range map[string]schedules.Settings{
			"report":                 settings(func(r *schedules.Settings) { r.Cron = new("every hour") }),
			"":                       settings(nil),
			strings.Repeat("x", 129): settings(nil),
			"second":                 settings(nil), // there is room for one
		} {
			_, err := s.Schedules().Declare(t.Context(), "alice", "echo", name, r)
			if k := problem.KindOf(err); k != problem.Invalid && k != problem.TooManyRequests {
				t.Errorf("Declare %.10q = %v", name, err)
			}
		}
		list, err := s.Schedules().List(t.Context(), "alice", "echo")
		if err != nil || len(list) != 1 || list[0].Cron != before.Cron {
			t.Errorf("%+v, %v, want only %+v", list, err, before)
		}
	})
}

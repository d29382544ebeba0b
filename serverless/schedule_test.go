package serverless_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/fault"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/schedules"
)

// A yard is the stores that outlive servers.
type yard struct {
	t         *testing.T
	queue     serverless.JobQueue
	endpoints serverless.EndpointStore
	schedules schedules.Store
	budgets   *budget.Set      // nil: no limits
	clock     serverless.Clock // nil: the bubble's
	mayRun    func(ctx context.Context, user, endpoint string) (bool, error)
}

func newYard(t *testing.T) *yard {
	return &yard{t: t, queue: memory.NewJobs(), endpoints: twoEndpoints(t), schedules: memory.NewSchedules()}
}

// server starts a server on the stores. stop ends it.
func (y *yard) server() (s *serverless.Service, stop func()) {
	s = serverless.New(y.queue, y.endpoints, &serverless.Options{Schedules: y.schedules, DecodeRun: httpapi.DecodeRun, MayRun: y.mayRun, Budgets: y.budgets, Clock: y.clock})
	ctx, cancel := context.WithCancel(y.t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	synctest.Wait()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			y.t.Errorf("Run = %v", err)
		}
	})
	y.t.Cleanup(stop)
	return s, stop
}

// settings are those of a schedule that is due every hour.
func settings(change func(*schedules.Settings)) schedules.Settings {
	r := schedules.Settings{Cron: new("0 * * * *"), Run: []byte(`{"input":{"a":1}}`)}
	if change != nil {
		change(&r)
	}
	return r
}

func create(t *testing.T, s *serverless.Service, change func(*schedules.Settings)) schedules.Schedule {
	t.Helper()
	v, err := s.Schedules().Create(t.Context(), "alice", "echo", settings(change))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return v
}

// outcomes returns the outcomes of a schedule, oldest first, as "hour:minute decision".
func outcomes(t *testing.T, s *serverless.Service, id string) (list []string) {
	t.Helper()
	v, err := s.Schedules().Get(t.Context(), "alice", "echo", id)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range v.Outcomes {
		list = append([]string{o.At.UTC().Format("15:04 ") + string(o.Decision)}, list...)
	}
	return list
}

func wantOutcomes(t *testing.T, s *serverless.Service, id string, want ...string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, outcomes(t, s, id)); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
}

func jobsOf(t *testing.T, q serverless.JobQueue) (n int) {
	t.Helper()
	for _, err := range q.List(t.Context(), serverless.At(time.Now()), queue.ListQuery{Endpoint: "echo"}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// workOne has a worker end the next job of echo.
func workOne(t *testing.T, s *serverless.Service) serverless.Job {
	t.Helper()
	j := takeOne(t, s, "w")
	if err := finish(t, s, j.Ref, "w", `1`); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return j
}

func overlap(o schedules.Overlap) func(*schedules.Settings) {
	return func(r *schedules.Settings) { r.Overlap = &o }
}

// The clock of a bubble begins at midnight.
func inYard(t *testing.T, f func(t *testing.T, y *yard)) {
	synctest.Test(t, func(t *testing.T) { f(t, newYard(t)) })
}

func TestAJobIsSubmittedAtEachInstant(t *testing.T) {
	inYard(t, func(t *testing.T, y *yard) {
		s, _ := y.server()
		v := create(t, s, func(r *schedules.Settings) {
			r.Run, r.Secret = []byte(`{"input":{"a":1},"webhook":"https://example.com/x"}`), []byte(`{"s3Config":{"accessSecret":"x"}}`)
		})
		until(time.Hour, func() {
			if n := jobsOf(t, y.queue); n != 0 {
				t.Errorf("%d jobs before the instant, want none", n)
			}
		}, func() {
			j := workOne(t, s)
			at := time.Now().UTC()
			if j.ID != v.JobID(at) || j.Owner != "alice" || string(j.Input) != `{"a":1}` || j.Webhook != "https://example.com/x" {
				t.Errorf("the job is %+v, want id %s", j, v.JobID(at))
			}
			want := fmt.Sprintf(`{"schedule":{"id":%q,"at":%q},"s3Config":{"accessSecret":"x"}}`, v.ID, at.Format(time.RFC3339))
			if string(j.Extra) != want || !json.Valid(j.Extra) {
				t.Errorf("the worker sees %s, want %s", j.Extra, want)
			}
		})
		time.Sleep(time.Hour)
		wantOutcomes(t, s, v.ID, "01:00 submitted", "02:00 submitted")
	})
}

func TestOverlap(t *testing.T) {
	for _, row := range []struct {
		overlap schedules.Overlap
		running []string // after three hours, while the first job runs
		ended   []string // after the end of the first job
	}{
		{schedules.OverlapSkip, []string{"01:00 submitted", "02:00 skipped", "03:00 skipped"}, []string{"01:00 submitted", "02:00 skipped", "03:00 skipped"}},
		{schedules.OverlapQueue, []string{"01:00 submitted", "03:00 skipped"}, []string{"01:00 submitted", "03:00 skipped", "02:00 submitted"}},
		{schedules.OverlapAllow, []string{"01:00 submitted", "02:00 submitted", "03:00 submitted"}, []string{"01:00 submitted", "02:00 submitted", "03:00 submitted"}},
	} {
		t.Run(string(row.overlap), func(t *testing.T) {
			inYard(t, func(t *testing.T, y *yard) {
				s, _ := y.server()
				v := create(t, s, overlap(row.overlap))
				time.Sleep(3*time.Hour + time.Minute)
				wantOutcomes(t, s, v.ID, row.running...)
				workOne(t, s)
				wantOutcomes(t, s, v.ID, row.ended...)
				time.Sleep(time.Hour)
				if row.overlap == schedules.OverlapSkip {
					wantOutcomes(t, s, v.ID, append(row.ended, "04:00 submitted")...)
				}
			})
		})
	}
}

func TestWhatWaitsForAJobIsSubmittedAfterARestart(t *testing.T) {
	inYard(t, func(t *testing.T, y *yard) {
		s, stop := y.server()
		v := create(t, s, overlap(schedules.OverlapQueue))
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		stop()
		s, _ = y.server()
		wantOutcomes(t, s, v.ID, "01:00 submitted")
		workOne(t, s)
		wantOutcomes(t, s, v.ID, "01:00 submitted", "02:00 submitted")
	})
}

func TestCatchUp(t *testing.T) {
	hours := func(from, to int) (list []string) {
		for h := from; h <= to; h++ {
			list = append(list, fmt.Sprintf("%02d:00 submitted", h%24))
		}
		return list
	}
	for _, row := range []struct {
		name string
		how  schedules.CatchUp
		down time.Duration
		want []string
	}{
		{"none", schedules.CatchUpNone, 5 * time.Hour, []string{"05:00 missed"}},
		{"none, an instant just now", schedules.CatchUpNone, 4*time.Hour + 31*time.Minute, []string{"04:00 missed", "05:00 submitted"}},
		{"none, nothing was missed", schedules.CatchUpNone, 10 * time.Minute, nil},
		{"last", schedules.CatchUpLast, 5 * time.Hour, []string{"04:00 missed", "05:00 submitted"}},
		{"last, long ago", schedules.CatchUpLast, 500 * 24 * time.Hour, []string{"23:00 missed", "00:00 submitted"}},
		{"all", schedules.CatchUpAll, 5 * time.Hour, hours(1, 5)},
		{"all of a day", schedules.CatchUpAll, 30 * time.Hour, hours(11, 30)},
	} {
		t.Run(row.name, func(t *testing.T) {
			inYard(t, func(t *testing.T, y *yard) {
				s, stop := y.server()
				v := create(t, s, func(r *schedules.Settings) { r.CatchUp, r.Overlap = &row.how, new(schedules.OverlapAllow) })
				time.Sleep(30 * time.Minute)
				stop()
				time.Sleep(row.down)
				s, _ = y.server()
				got := row.want
				if len(got) > schedules.MaxOutcomes {
					got = got[len(got)-schedules.MaxOutcomes:]
				}
				wantOutcomes(t, s, v.ID, got...)
			})
		})
	}
}

// Instants before the day that is looked at are noted too.
func TestInstantsOfLongAgoAreMissed(t *testing.T) {
	for how, want := range map[schedules.CatchUp][]string{
		schedules.CatchUpNone: {"00:00 missed"},
		schedules.CatchUpLast: {"00:00 missed", "00:00 submitted"},
		schedules.CatchUpAll:  {"00:00 missed", "00:00 submitted"},
	} {
		inYard(t, func(t *testing.T, y *yard) {
			s, stop := y.server()
			v := create(t, s, func(r *schedules.Settings) { r.Cron, r.CatchUp = new("0 0 * * *"), &how })
			stop()
			time.Sleep(5*24*time.Hour + time.Hour)
			s, _ = y.server()
			wantOutcomes(t, s, v.ID, want...)
			time.Sleep(24 * time.Hour)
			if how == schedules.CatchUpNone {
				wantOutcomes(t, s, v.ID, append(want, "00:00 submitted")...)
			}
		})
	}
}

func TestCatchUpOfAllIsTheNewestHundred(t *testing.T) {
	inYard(t, func(t *testing.T, y *yard) {
		s, stop := y.server()
		create(t, s, func(r *schedules.Settings) {
			r.Cron, r.CatchUp, r.Overlap = new("* * * * *"), new(schedules.CatchUpAll), new(schedules.OverlapAllow)
		})
		stop()
		time.Sleep(3*time.Hour + time.Second)
		y.server()
		if n := jobsOf(t, y.queue); n != schedules.MaxCatchUp {
			t.Errorf("%d jobs, want %d", n, schedules.MaxCatchUp)
		}
	})
}

// A server ends after a job was queued and before that was recorded. The job ends meanwhile.
func TestAnInstantIsSubmittedOnceOverARestart(t *testing.T) {
	for _, catchUp := range []schedules.CatchUp{schedules.CatchUpNone, schedules.CatchUpLast, schedules.CatchUpAll} {
		for _, o := range []schedules.Overlap{schedules.OverlapSkip, schedules.OverlapQueue, schedules.OverlapAllow} {
			for _, when := range []fault.Kind{fault.Before, fault.After} {
				t.Run(fmt.Sprint(catchUp, o, when), func(t *testing.T) {
					inYard(t, func(t *testing.T, y *yard) {
						s, id := y.cutShort(when, func(r *schedules.Settings) { r.CatchUp, r.Overlap = &catchUp, &o })
						wantOutcomes(t, s, id, "01:00 submitted")
						if n := jobsOf(t, y.queue); n != 1 {
							t.Errorf("%d jobs, want 1", n)
						}
					})
				})
			}
		}
	}
}

// cutShort has a server end after it has queued the job of an instant and before that was
// recorded. The job ends, and another server starts, which is returned.
func (y *yard) cutShort(when fault.Kind, change func(*schedules.Settings)) (s *serverless.Service, id string) {
	stored := y.schedules
	s, stop := y.server()
	id = create(y.t, s, change).ID
	stop()
	y.schedules = fault.Schedules(stored, fault.NewPlan(1, fault.Rule{Call: "schedules.Update", Kind: when}))
	s, stop = y.server()
	time.Sleep(time.Hour)
	workOne(y.t, s)
	stop()
	y.schedules = stored
	time.Sleep(30 * time.Second)
	s, _ = y.server()
	synctest.Wait()
	return s, id
}

// anyID is a queue with a mistake: it gives jobs ids of its own, so a job that is queued again is
// another one.
type anyID struct {
	serverless.JobQueue
	made int
}

func (q *anyID) Enqueue(ctx context.Context, jobs []serverless.Job) error {
	jobs = slices.Clone(jobs)
	for i := range jobs {
		q.made++
		jobs[i].ID = serverless.JobID(fmt.Sprint("job-", q.made))
	}
	return q.JobQueue.Enqueue(ctx, jobs)
}

func TestAnInstantThatIsSubmittedTwiceOverARestartIsFound(t *testing.T) {
	inYard(t, func(t *testing.T, y *yard) {
		y.queue = &anyID{JobQueue: y.queue}
		y.cutShort(fault.Before, nil)
		if n := jobsOf(t, y.queue); n != 2 {
			t.Errorf("%d jobs of an instant, want that the mistake makes 2", n)
		}
	})
}

func TestAnInstantIsSubmittedOnceByManyServers(t *testing.T) {
	inYard(t, func(t *testing.T, y *yard) {
		s, stop := y.server()
		v := create(t, s, overlap(schedules.OverlapAllow))
		stop()
		for range 3 {
			s, _ = y.server()
		}
		time.Sleep(2 * time.Hour)
		wantOutcomes(t, s, v.ID, "01:00 submitted", "02:00 submitted")
		if n := jobsOf(t, y.queue); n != 2 {
			t.Errorf("%d jobs, want 2", n)
		}
	})
}

func TestWithoutThePermissionAScheduleIsDisabled(t *testing.T) {
	inYard(t, func(t *testing.T, y *yard) {
		var asked lineLog
		var revoked atomic.Bool
		y.mayRun = func(_ context.Context, user, endpoint string) (bool, error) {
			asked.add(user + " " + endpoint)
			return !revoked.Load(), nil
		}
		s, _ := y.server()
		v := create(t, s, overlap(schedules.OverlapAllow))
		time.Sleep(time.Hour)
		synctest.Wait()
		revoked.Store(true)
		time.Sleep(3 * time.Hour)
		wantOutcomes(t, s, v.ID, "01:00 submitted", "02:00 disabled")
		if diff := cmp.Diff([]string{"alice echo", "alice echo"}, asked.all()); diff != "" {
			t.Errorf("asked for (-want +got):\n%s", diff)
		}
		v, err := s.Schedules().Get(t.Context(), "alice", "echo", v.ID)
		if err != nil || v.Enabled || !v.Next().IsZero() || v.Outcomes[0].Detail == "" {
			t.Errorf("the schedule is %+v, %v, want it disabled, with a reason", v, err)
		}
	})
}

// Disabled time is not caught up, and neither is the time of another expression.
func TestAChangeCountsFromNowOn(t *testing.T) {
	inYard(t, func(t *testing.T, y *yard) {
		s, _ := y.server()
		v := create(t, s, func(r *schedules.Settings) {
			r.CatchUp, r.Overlap = new(schedules.CatchUpAll), new(schedules.OverlapAllow)
		})
		change := func(r schedules.Settings) {
			t.Helper()
			if _, err := s.Schedules().Update(t.Context(), "alice", "echo", v.ID, r); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(90 * time.Minute)
		change(schedules.Settings{Enabled: new(false)})
		time.Sleep(3 * time.Hour)
		change(schedules.Settings{Enabled: new(true)}) // 04:30
		time.Sleep(time.Hour)
		change(schedules.Settings{Cron: new("15 * * * *")}) // 05:30
		time.Sleep(time.Hour)
		change(schedules.Settings{TimeZone: new("Asia/Kolkata")}) // 06:30, and the wall shows 12:00
		time.Sleep(30 * time.Minute)
		wantOutcomes(t, s, v.ID, "01:00 submitted", "05:00 submitted", "06:15 submitted", "06:45 submitted")
	})
}

func TestSchedulesGoWithTheirEndpointAndTheirOwner(t *testing.T) {
	inYard(t, func(t *testing.T, y *yard) {
		s, _ := y.server()
		other, err := s.Schedules().Create(t.Context(), "bob", "other", settings(nil))
		if err != nil {
			t.Fatal(err)
		}
		create(t, s, nil)
		if err := s.UndeclareEndpoint(t.Context(), "echo"); err != nil {
			t.Fatal(err)
		}
		list, err := y.schedules.All(t.Context())
		if err != nil || len(list) != 1 || list[0].ID != other.ID {
			t.Fatalf("schedules after their endpoint was deleted = %+v, %v, want bob's on the other one", list, err)
		}
		if n, err := s.Schedules().Erase(t.Context(), "bob"); n != 1 || err != nil {
			t.Errorf("Erase = %d, %v, want 1", n, err)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if n := jobsOf(t, y.queue); n != 0 {
			t.Errorf("%d jobs, want none", n)
		}
	})
}

func TestAUserHasAsManySchedulesAsTheirBudgetSays(t *testing.T) {
	inYard(t, func(t *testing.T, y *yard) {
		y.budgets = budget.NewSet(budget.Users{Limits: budget.Limits{Schedules: 3}, Exempt: []string{"carol"}})
		s, _ := y.server()
		for range 3 {
			create(t, s, nil)
		}
		_, err := s.Schedules().Create(t.Context(), "alice", "other", settings(nil))
		if problem.KindOf(err) != problem.TooManyRequests || !strings.Contains(err.Error(), "schedules") {
			t.Errorf("one more = %v, want a 429 that says what is full", err)
		}
		for _, user := range []string{"bob", "carol", "carol", "carol", "carol"} {
			if _, err := s.Schedules().Create(t.Context(), user, "echo", settings(nil)); err != nil {
				t.Errorf("a schedule of %s = %v", user, err)
			}
		}
	})
}

func TestAnotherUsersScheduleIsNotFound(t *testing.T) {
	inYard(t, func(t *testing.T, y *yard) {
		s, _ := y.server()
		v := create(t, s, nil)
		for _, who := range []struct{ user, endpoint string }{{"bob", "echo"}, {"alice", "other"}} {
			_, err1 := s.Schedules().Get(t.Context(), who.user, who.endpoint, v.ID)
			_, err2 := s.Schedules().Update(t.Context(), who.user, who.endpoint, v.ID, schedules.Settings{Enabled: new(false)})
			_, err3 := s.Schedules().RunNow(t.Context(), who.user, who.endpoint, v.ID)
			err4 := s.Schedules().Delete(t.Context(), who.user, who.endpoint, v.ID)
			for _, err := range []error{err1, err2, err3, err4} {
				if !errors.Is(err, schedules.ErrNotFound) {
					t.Errorf("%v: %v, want ErrNotFound", who, err)
				}
			}
			if list, err := s.Schedules().List(t.Context(), who.user, who.endpoint); len(list) != 0 || err != nil {
				t.Errorf("%v: List = %v, %v, want none", who, list, err)
			}
		}
		if !v.Enabled {
			t.Error("somebody else has disabled it")
		}
	})
}

func TestRunNowDoesNotDependOnTheClock(t *testing.T) {
	inYard(t, func(t *testing.T, y *yard) {
		s, _ := y.server()
		v := create(t, s, func(r *schedules.Settings) { r.Enabled = new(false) })
		a, err1 := s.Schedules().RunNow(t.Context(), "alice", "echo", v.ID)
		b, err2 := s.Schedules().RunNow(t.Context(), "alice", "echo", v.ID)
		if err1 != nil || err2 != nil || a.ID == b.ID {
			t.Errorf("RunNow = %s, %v and %s, %v, want two jobs", a.ID, err1, b.ID, err2)
		}
		wantOutcomes(t, s, v.ID, "00:00 requested", "00:00 requested")
	})
}

// A store that does not answer delays an instant. What cannot be submitted at all is recorded.
func TestAnInstantIsTriedAgainAndARefusedOneIsNot(t *testing.T) {
	inYard(t, func(t *testing.T, y *yard) {
		y.queue = fault.Jobs(y.queue, fault.NewPlan(1, fault.Rule{Call: "jobs.Enqueue", Kind: fault.Before, Times: 5}))
		s, _ := y.server()
		v := create(t, s, nil)
		time.Sleep(time.Hour + 10*time.Second)
		wantOutcomes(t, s, v.ID, "01:00 submitted")
		_, err := y.schedules.Update(t.Context(), v.ID, func(v *schedules.Schedule) error { v.Run = []byte(`{"input":1}`); return nil })
		if err != nil {
			t.Fatal(err)
		}
		workOne(t, s)
		time.Sleep(time.Hour)
		wantOutcomes(t, s, v.ID, "01:00 submitted", "02:00 refused")
	})
}

func TestFaultsOfAScheduleAreReportedTogether(t *testing.T) {
	inYard(t, func(t *testing.T, y *yard) {
		s, _ := y.server()
		_, err := s.Schedules().Create(t.Context(), "alice", "echo", schedules.Settings{
			CatchUp: new(schedules.CatchUp("some")), Overlap: new(schedules.Overlap("")), TimeZone: new("Mars/Olympus"), Cron: new("0 0 30 2 *"),
			Run: []byte(`{"queue":{"startAfter":5},"policy":{"ttl":1}}`),
		})
		kind, list := faults(t, err)
		want := []string{
			"/cron: day of the month: no month of the expression has such a day, so that it would never fire",
			`/timeZone: "Mars/Olympus" is no time zone of the IANA database, such as Europe/Berlin`,
			"/run/input: is required",
			"/run/policy/ttl: must be from 10000 to 604800000 milliseconds",
			"/run/queue/startAfter: must be absent: the schedule says when its jobs start",
			"/overlap: must be one of skip, queue, allow",
			"/catchUp: must be one of none, last, all",
		}
		if diff := cmp.Diff(want, list); diff != "" || kind != problem.Invalid {
			t.Errorf("faults of kind %v (-want +got):\n%s", kind, diff)
		}
	})
}

func TestAServiceWithoutAStoreHasNoSchedules(t *testing.T) {
	if s := serverless.New(memory.NewJobs(), memory.NewEndpoints(), nil); s.Schedules() != nil {
		t.Errorf("Schedules = %v, want nil", s.Schedules())
	}
}

package serverless_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/serverless/schedules"
)

// An offClock is ahead of the bubble's clock, or behind it.
type offClock struct{ by atomic.Int64 }

func (c *offClock) Now() time.Time { return time.Now().Round(0).Add(time.Duration(c.by.Load())) }

// AfterFunc is that of the system: its timers do not know that the clock was set.
func (c *offClock) AfterFunc(at time.Time, f func()) func() bool {
	return time.AfterFunc(at.Sub(c.Now()), f).Stop
}

func TestSchedulesGoOnAfterAClockThatWasAheadIsSetRight(t *testing.T) {
	for _, row := range []struct {
		name    string
		cron    string
		restart bool
		ahead   time.Duration
		want    []string
	}{
		// The job of 02:00 was made an hour early. It is not made twice.
		{"an hour, and the server starts again", "0 * * * *", true, time.Hour, []string{"02:00 submitted", "01:01 missed", "03:00 submitted"}},
		{"an hour, while the server runs", "0 * * * *", false, time.Hour, []string{"02:00 submitted", "01:01 missed", "03:00 submitted"}},
		{"a year", "0 * * * *", true, 365 * 24 * time.Hour, []string{"01:00 submitted", "01:01 missed", "02:00 submitted", "03:00 submitted"}},
		{"half a minute, which clocks of servers may differ by", "0 * * * *", true, time.Minute / 2, []string{"01:00 submitted", "02:00 submitted", "03:00 submitted"}},
		{"a day, each half an hour, while the server runs", "*/30 * * * *", false, 24 * time.Hour, []string{"00:30 submitted", "01:00 submitted", "01:01 missed", "01:30 submitted", "02:00 submitted", "02:30 submitted", "03:00 submitted"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			inYard(t, func(t *testing.T, y *yard) {
				clock := &offClock{}
				clock.by.Store(int64(row.ahead))
				y.clock = clock
				s, stop := y.server()
				v := create(t, s, func(r *schedules.Settings) {
					r.Cron, r.Overlap = &row.cron, new(schedules.OverlapAllow)
				})
				time.Sleep(time.Hour + time.Minute)
				synctest.Wait()
				if row.restart {
					stop()
				}
				clock.by.Store(0)
				if row.restart {
					s, _ = y.server()
				}
				time.Sleep(2 * time.Hour)
				wantOutcomes(t, s, v.ID, row.want...)
			})
		})
	}
}

func TestSchedulesFireInTheNextMinuteAfterAClockThatWasBehindIsSetRight(t *testing.T) {
	inYard(t, func(t *testing.T, y *yard) {
		clock := &offClock{}
		clock.by.Store(-int64(time.Hour))
		y.clock = clock
		s, stop := y.server()
		v := create(t, s, func(r *schedules.Settings) { r.Cron = new("* * * * *") })
		stop()
		clock.by.Store(0)
		s, _ = y.server()
		time.Sleep(time.Minute)
		wantOutcomes(t, s, v.ID, "23:59 missed", "00:00 submitted", "00:01 skipped")
	})
}

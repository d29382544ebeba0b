package schedules

import (
	"slices"
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/cron"
)

// Settings are what users set of a schedule. A nil field is absent.
type Settings struct {
	Cron     *string
	TimeZone *string // default UTC
	Run      []byte  // as in Schedule
	Secret   []byte  // as in Schedule; replaced together with Run
	Overlap  *Overlap
	CatchUp  *CatchUp
	Enabled  *bool

	// Idempotency is the key of a request to create a schedule (docs/decisions.md 38). Nil: it
	// has none.
	Idempotency *idempotency.Request

	// Violations are faults that a decoder found. They are reported with those of the rules.
	Violations problem.Violations
}

// fields are the members of Settings in their documented order.
var fields = []string{"cron", "timeZone", "run", "overlap", "catchUp", "enabled"}

// check reports all faults of the settings together. of has the values of absent members.
func (r *Settings) check(jobs Jobs, of *Schedule, isNew bool) error {
	v := &r.Violations
	r.checkTimes(of, isNew)
	if r.Overlap != nil && !slices.Contains([]Overlap{OverlapSkip, OverlapQueue, OverlapAllow}, *r.Overlap) {
		v.Add(problem.Invalid, "/overlap", "must be one of skip, queue, allow")
	}
	if r.CatchUp != nil && !slices.Contains([]CatchUp{CatchUpNone, CatchUpLast, CatchUpAll}, *r.CatchUp) {
		v.Add(problem.Invalid, "/catchUp", "must be one of none, last, all")
	}
	switch {
	case r.Run != nil && !v.Has("/run"):
		whole := Schedule{Run: r.Run, Secret: r.Secret}
		if err := jobs.CheckRun(whole.body(), v, "/run"); err != nil {
			return err
		}
	case r.Run == nil && isNew:
		v.Add(problem.Invalid, "/run", "is required")
	}
	if !isNew && r.empty() && v.Err(nil) == nil {
		v.Add(problem.Invalid, "", "the body must name at least one of cron, timeZone, run, overlap, catchUp, enabled")
	}
	return v.Err(fields)
}

func (r *Settings) empty() bool {
	return r.Cron == nil && r.TimeZone == nil && r.Run == nil && r.Overlap == nil && r.CatchUp == nil && r.Enabled == nil
}

// checkTimes checks expression and zone.
func (r *Settings) checkTimes(of *Schedule, isNew bool) {
	v := &r.Violations
	if r.Cron == nil && isNew {
		v.Add(problem.Invalid, "/cron", "is required")
	}
	t := *of
	r.apply(&t)
	if _, err := cron.Parse(t.Cron); err != nil && r.Cron != nil {
		v.Add(problem.Invalid, "/cron", "%s", err)
	}
	if _, err := cron.Zone(t.TimeZone); err != nil && r.TimeZone != nil {
		v.Add(problem.Invalid, "/timeZone", "%s", err)
	}
}

// apply sets the members that are there.
func (r *Settings) apply(s *Schedule) {
	set(&s.Cron, r.Cron)
	set(&s.TimeZone, r.TimeZone)
	set(&s.Overlap, r.Overlap)
	set(&s.CatchUp, r.CatchUp)
	set(&s.Enabled, r.Enabled)
	if r.Run != nil {
		s.Run, s.Secret = r.Run, r.Secret
	}
}

// change is apply for a schedule that exists. Time in which it was disabled, or had another
// expression, is not caught up.
func (r *Settings) change(s *Schedule, now time.Time) {
	before := *s
	r.apply(s)
	if s.Enabled && !before.Enabled || s.Cron != before.Cron || s.TimeZone != before.TimeZone {
		s.After, s.Waiting = now, time.Time{}
	}
	if !s.Enabled {
		s.Waiting = time.Time{}
	}
}

// changesRun reports whether r would change what the jobs of a schedule do.
func (r *Settings) changesRun(s *Schedule) bool {
	return r.Run != nil && (string(r.Run) != string(s.Run) || string(r.Secret) != string(s.Secret))
}

func set[T any](to *T, v *T) {
	if v != nil {
		*to = *v
	}
}

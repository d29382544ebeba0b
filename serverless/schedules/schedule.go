package schedules

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/cron"
	"github.com/podyard/podyard/serverless/queue"
)

// Limits of schedules.
const (
	// MaxOutcomes is how many outcomes a schedule keeps.
	MaxOutcomes = 20
	// MaxCatchUp is the most instants that CatchUpAll makes up for, and CatchUpWindow how old
	// they may be.
	MaxCatchUp    = 100
	CatchUpWindow = 24 * time.Hour
	// Grace is how late an instant may be without being missed.
	Grace = time.Minute
)

// An Overlap says what happens at an instant when the job of the instant before has not ended.
type Overlap string

// The overlaps.
const (
	OverlapSkip  Overlap = "skip"  // there is no job for the instant
	OverlapQueue Overlap = "queue" // one instant waits for the end of the job; others are skipped
	OverlapAllow Overlap = "allow" // the jobs run side by side
)

// A CatchUp says what happens to instants that passed while no server ran. Overlap counts for
// them too.
type CatchUp string

// The ways to catch up.
const (
	CatchUpNone CatchUp = "none" // nothing
	CatchUpLast CatchUp = "last" // the newest instant is submitted
	CatchUpAll  CatchUp = "all"  // the MaxCatchUp newest ones of CatchUpWindow are submitted
)

// A Schedule submits a job at each instant of a cron expression.
type Schedule struct {
	ID       string
	Name     string `json:",omitempty"` // of one that a program has declared; empty: it was created
	Owner    string
	Endpoint string
	Created  time.Time
	Edited   bool `json:",omitempty"` // Run of a declared one is not the program's: Update has changed it

	Cron     string
	TimeZone string // a name that cron.Zone knows
	// Run is the body of a run request, a JSON object. Secret has its members that only workers
	// see (s3Config), in another object; nil: none. A store on disk encrypts Secret.
	Run     []byte
	Secret  []byte
	Overlap Overlap
	CatchUp CatchUp
	Enabled bool

	// After is the last instant that was decided, or when the expression began to count. Later
	// instants are due.
	After time.Time
	// Waiting is the instant that waits for the end of the job Last; zero: none.
	Waiting time.Time
	// Last is the job of the last instant that was submitted; empty: none.
	Last queue.JobID
	// Outcomes are the newest first, at most MaxOutcomes.
	Outcomes []Outcome
}

// A Decision is what became of an instant.
type Decision string

// The decisions.
const (
	Submitted Decision = "submitted" // a job was queued
	Skipped   Decision = "skipped"   // by Overlap
	Missed    Decision = "missed"    // no server ran then, At is the newest of these instants; or the clock was ahead before At
	Refused   Decision = "refused"   // the job could not be submitted
	Disabled  Decision = "disabled"  // the owner may no longer run jobs on the endpoint
	Requested Decision = "requested" // a job was queued by Service.Run, and not by the clock
)

// An Outcome is what became of an instant of a schedule.
type Outcome struct {
	At       time.Time
	Decision Decision
	Job      queue.JobID // of Submitted and Requested
	Detail   string      // why, for users; empty: nothing to say
}

// Clone returns a copy that shares nothing that is changed.
func (s Schedule) Clone() Schedule {
	s.Run, s.Secret = slices.Clone(s.Run), slices.Clone(s.Secret)
	s.Outcomes = slices.Clone(s.Outcomes)
	return s
}

// Compare orders schedules by creation, then by id.
func Compare(a, b Schedule) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
}

// Next returns the next instant, or the zero time for a schedule that is not enabled.
func (s *Schedule) Next() time.Time {
	t, err := s.times()
	if err != nil || !s.Enabled {
		return time.Time{}
	}
	return t.next(s.After)
}

// ahead reports whether instants were decided that are more than Grace to come. The clock was
// then ahead, for example before NTP or a battery was mended.
func (s *Schedule) ahead(now time.Time) bool { return s.After.Sub(now) > Grace }

// JobID returns the id of the job of an instant. It has the form of other ids of jobs.
func (s *Schedule) JobID(at time.Time) queue.JobID {
	u := sha256.Sum256(fmt.Appendf(nil, "schedule %s %d", s.ID, at.UnixMilli()))
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return queue.JobID(fmt.Sprintf("%x-%x-%x-%x-%x-u1", u[:4], u[4:6], u[6:8], u[8:10], u[10:16]))
}

// body returns the whole body of the run request.
func (s *Schedule) body() []byte {
	switch {
	case len(s.Secret) <= len("{}"):
		return s.Run
	case len(s.Run) <= len("{}"):
		return s.Secret
	}
	return slices.Concat(s.Secret[:len(s.Secret)-1], []byte{','}, s.Run[1:])
}

// record adds an outcome, unless another server has recorded it.
func (s *Schedule) record(o Outcome) {
	known := func(x Outcome) bool { return x.At.Equal(o.At) && x.Decision == o.Decision && x.Job == o.Job }
	if slices.ContainsFunc(s.Outcomes, known) {
		return
	}
	s.Outcomes = slices.Insert(s.Outcomes, 0, o)
	if len(s.Outcomes) > MaxOutcomes {
		s.Outcomes = s.Outcomes[:MaxOutcomes:MaxOutcomes]
	}
}

// times are the instants of a schedule.
type times struct {
	cron cron.Expression
	zone *time.Location
}

func (s *Schedule) times() (t times, err error) {
	if t.cron, err = cron.Parse(s.Cron); err != nil {
		return t, err
	}
	t.zone, err = cron.Zone(s.TimeZone)
	return t, err
}

func (t times) next(after time.Time) time.Time { return t.cron.Next(after, t.zone) }

// lookback are the spans in which instants that have passed are searched for, so that few are
// looked at. The last span is all of the time since Schedule.After.
var lookback = [...]time.Duration{CatchUpWindow, 40 * 24 * time.Hour, 400 * 24 * time.Hour, 1<<63 - 1}

// passed returns the newest instants after one instant up to another, oldest first. all says
// whether these are all of them; otherwise the first one is the oldest of all.
func (t times) passed(after, now time.Time) (list []time.Time, all bool) {
	for _, span := range lookback {
		from := now.Add(-span)
		if all = !from.After(after); all {
			from = after
		}
		for at := t.next(from); !at.IsZero() && !at.After(now); at = t.next(at) {
			list = append(list, at)
		}
		if len(list) > 0 || all {
			break
		}
	}
	if oldest := t.next(after); !all && oldest.Before(list[0]) {
		list = slices.Insert(list, 0, oldest)
	}
	return list, all
}

// due splits instants that have passed into those that are submitted, and the others.
func (s *Schedule) due(passed []time.Time, now time.Time) (submit, missed []time.Time) {
	n := len(passed)
	if n == 0 {
		return nil, nil
	}
	first := n - 1
	switch s.CatchUp {
	case CatchUpAll:
		first = max(0, n-MaxCatchUp)
		for first < n && now.Sub(passed[first]) > CatchUpWindow {
			first++
		}
	case CatchUpLast:
	default:
		if now.Sub(passed[first]) > Grace {
			first = n
		}
	}
	return passed[first:], passed[:first]
}

// Holding is what a schedule takes of its owner's budgets (docs/decisions.md 37).
func (s *Schedule) Holding() budget.Holding {
	return budget.Holding{User: s.Owner, Of: [2]budget.Amount{{Budget: budget.Schedules, N: 1}}}
}

// Package schedulestest is what every schedules.Store must do.
package schedulestest

import (
	"slices"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/schedules"
)

// TestStore runs every rule on a store of its own that open returns: empty, and closed
// by a cleanup of t if it must be.
func TestStore(t *testing.T, open func(t *testing.T) schedules.Store) {
	suite.Test(t, slices.Concat(suite.RecordRules[schedules.Store](records), suite.UpdateRules[schedules.Store](records)), open)
}

var records = suite.Records[schedules.Schedule]{
	New: schedule,
	Bare: func(id, owner string, created time.Time) schedules.Schedule {
		return schedules.Schedule{ID: id, Owner: owner, Endpoint: "e", Created: created, Cron: "* * * * *", TimeZone: "UTC", Run: []byte("{}"), After: created}
	},
	ID:    func(s schedules.Schedule) string { return s.ID },
	Spoil: func(s *schedules.Schedule) { s.Run[0], s.Secret[0], s.Outcomes[0].Detail = 'x', 'x', "x" },
	Change: func(s *schedules.Schedule) {
		s.Run, s.Secret, s.Outcomes, s.Waiting, s.Enabled = []byte(`{"input":{}}`), nil, s.Outcomes[1:], time.Time{}, false
	},
	Count: func(s *schedules.Schedule) { s.After = s.After.Add(time.Minute) },

	ErrExists: schedules.ErrExists, ErrNotFound: schedules.ErrNotFound,
}

func schedule(id, owner string, created time.Time) schedules.Schedule {
	return schedules.Schedule{
		ID: id, Owner: owner, Endpoint: "echo", Created: created, Cron: "*/5 * * * MON", TimeZone: "Europe/Berlin",
		Run:     []byte("{\"input\": {\"a\":\"\\u0001\xe2\x82\xac\"}}"),
		Secret:  []byte(`{"s3Config":{"accessSecret":"x"}}`),
		Overlap: schedules.OverlapQueue, CatchUp: schedules.CatchUpAll, Enabled: true,
		After: created.Add(time.Hour), Waiting: created.Add(time.Minute), Last: "last-u1",
		Outcomes: []schedules.Outcome{
			{At: created.Add(2 * time.Minute), Decision: schedules.Submitted, Job: "last-u1"},
			{At: created.Add(time.Minute), Decision: schedules.Skipped, Detail: "\"why\" \x01"},
		},
	}
}

// Package joblogtest is what every joblog.Store must do.
package joblogtest

import (
	"slices"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/joblog"
	"github.com/podyard/podyard/serverless/queue"
)

// TestStore runs every rule on a store of its own that open returns: empty, and closed
// by a cleanup of t if it must be.
func TestStore(t *testing.T, open func(t *testing.T) joblog.Store) {
	suite.Test(t, slices.Concat(suite.RecordRules[joblog.Store](records), suite.UpdateRules[joblog.Store](records)), open)
}

var records = suite.Records[joblog.Log]{
	New: func(id, owner string, created time.Time) joblog.Log {
		return joblog.Log{
			ID: id, Owner: owner, Endpoint: "echo", Job: queue.JobID(id), Created: created, Updated: created.Add(time.Hour), Size: 77, Dropped: 3,
			Lines: []joblog.Line{{At: created.Add(time.Minute), Level: "INFO", Text: "\"a\" \x01 € <&>"}, {At: created.Add(time.Minute)}},
		}
	},
	Bare: func(id, owner string, created time.Time) joblog.Log {
		return joblog.Log{ID: id, Owner: owner, Created: created}
	},
	ID:     func(l joblog.Log) string { return l.ID },
	Listed: joblog.Log.Listed,
	Spoil: func(l *joblog.Log) {
		for i := range l.Lines {
			l.Lines[i].Text = "spoilt"
		}
	},
	Change: func(l *joblog.Log) { l.Lines, l.Size, l.Dropped = l.Lines[1:], 33, 4 },
	Count:  func(l *joblog.Log) { l.Dropped++ },

	ErrExists: joblog.ErrExists, ErrNotFound: joblog.ErrNotFound,
}

package joblog

import (
	"cmp"
	"time"

	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
)

// Limits of the log of one job.
const (
	MaxBytes = 64 << 10 // of lines that are kept, the newest
	MaxLine  = 16 << 10 // of one line; the rest is cut off
	MaxLevel = 16       // of the level of a line

	lineCost = 32  // what a line takes beside its text
	logCost  = 256 // what a log takes beside its lines
)

// A Line is a line that a job has printed.
type Line struct {
	At    time.Time `json:"time"`
	Level string    `json:"level,omitzero"` // as the worker says it: INFO, ERROR, ...
	Text  string    `json:"message"`
}

func (l *Line) size() int { return len(l.Text) + len(l.Level) + lineCost }

// A Log is what the runs of a job have printed, oldest first.
type Log struct {
	ID       string // ID(Endpoint, Job)
	Owner    string // of the job
	Endpoint string
	Job      queue.JobID
	Created  time.Time
	Updated  time.Time
	Size     int    // what Lines take of MaxBytes
	Dropped  int    // how many lines before the first have gone
	Lines    []Line `json:",omitzero"`
}

// ID returns the id of the log of a job. An endpoint has no slash in its id.
func ID(ref queue.Ref) string { return ref.Endpoint + "/" + string(ref.ID) }

// Ref returns the job.
func (l *Log) Ref() queue.Ref { return queue.Ref{Endpoint: l.Endpoint, ID: l.Job} }

// Listed returns the log without its lines, as lists have it.
func (l Log) Listed() Log {
	l.Lines = nil
	return l
}

// Clone returns the log with lines of its own.
func (l Log) Clone() Log {
	l.Lines = append([]Line(nil), l.Lines...)
	return l
}

// Compare orders logs by Created, and then by ID.
func Compare(a, b Log) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) }

// Holding is what a log takes of the budgets of its owner.
func (l *Log) Holding() budget.Holding {
	return budget.Holding{User: l.Owner, Of: [2]budget.Amount{{Budget: budget.JobLogBytes, N: int64(l.Size + logCost)}}}
}

// add appends lines, and drops the oldest that are over MaxBytes.
func (l *Log) add(lines []Line) {
	l.Lines = append(l.Lines, lines...)
	for i := range lines {
		l.Size += lines[i].size()
	}
	n := 0
	for ; l.Size > MaxBytes; n++ {
		l.Size -= l.Lines[n].size()
	}
	l.Lines, l.Dropped = l.Lines[n:], l.Dropped+n
}

package servers

import (
	"context"

	"github.com/podyard/podyard/problem"
)

// A Record is a small value that servers share and change one after the other.
type Record struct {
	Key string // at most MaxName bytes
	// Version is greater than that of every record that was stored before, whatever its key.
	Version int64
	Data    []byte // at most MaxData bytes
}

// ErrChanged is the error of Put if the record is not the one that the caller has read.
var ErrChanged = problem.New(problem.Conflict, "another server has changed the record")

// Records keeps records. It is safe for concurrent use and shares nothing with its callers. Package
// serverstest has its rules.
type Records interface {
	// Put stores r.Data under r.Key, durably, if the stored record has the version r.Version; 0
	// means that there is none. It returns the new version. Otherwise it returns ErrChanged and
	// changes nothing.
	Put(ctx context.Context, r Record) (version int64, err error)
	// Changes returns up to limit records whose versions are greater than after, in the order of
	// their versions. Who reads from its last version on misses no change.
	Changes(ctx context.Context, after int64, limit int) ([]Record, error)
}

// Check returns an error if a store cannot keep r. Every store calls it in Put.
func (r *Record) Check() error {
	switch {
	case r.Key == "" || len(r.Key) > MaxName:
		return problem.Newf(problem.Invalid, "the key of a record has 1 to %d bytes", MaxName)
	case len(r.Data) > MaxData:
		return problem.Newf(problem.Invalid, "the data of a record have at most %d bytes", MaxData)
	}
	return nil
}

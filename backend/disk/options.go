package disk

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/serverless/queue"
)

// A Clock tells the time.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f, which must not block, once Now has reached t. stop reports
	// whether it prevented the call.
	AfterFunc(t time.Time, f func()) (stop func() bool)
}

// Options are what a Store can be told. The zero value, and nil, work.
type Options struct {
	// Key seals secrets: the credentials of registries, what only workers see of a job
	// (s3Config), and what startSsh and startJupyter have a pod find in its environment.
	// Nothing else is sealed: variables that users give to pods, templates and endpoints are
	// shown by the API, and are on disk as they are. It has KeySize bytes, and must be the
	// same whenever the directory is opened. Default: none, and a change that holds a secret
	// is refused with ErrNoKey.
	Key []byte
	// OldKeys are what Key was before. What they have sealed is sealed with Key when the store
	// is opened, and they are not needed again once it was. An opening that is cut off leaves
	// secrets of both, which the next one opens and finishes.
	OldKeys [][]byte
	// Clock is what Run waits by, and the time at which jobs found in progress are handed
	// back. Default: the system's.
	Clock Clock
	// Logger gets what nobody asked about: a disk that fails, and that it works again.
	// Default: nothing is logged.
	Logger *slog.Logger
	// KeepFree is how many bytes of the file system stay free: when there are fewer, new
	// work is refused, and below half of it everything but deletions. Default 256 MiB;
	// negative: none.
	KeepFree int64
	// Ballast is the size in bytes of a file that is given up when the disk is full all
	// the same, so that the store can be opened again. Default 64 MiB; negative: none.
	Ballast int64
	// Cache is how many bytes of the database are kept in memory, besides those that were
	// written last, which are 128 MiB as a rule. Default 64 MiB.
	Cache int64
	// WorkerGone reports whether a worker that had a job when the store was left is known to be
	// gone, as workers of this process are: its jobs are queued again at opening, and nobody
	// is charged. Default: of none it is known. Their jobs stay with them until their leases
	// end, so that a worker elsewhere goes on as if nothing had happened.
	WorkerGone func(queue.WorkerID) bool

	// Only tests set these.
	fs       vfs.FS             // default: the system's
	memTable uint64             // bytes; default: as much as is good
	wait     func(*group) error // for the sync of a group; default: its method
}

func (o *Options) settle() (Options, error) {
	c := Options{}
	if o != nil {
		c = *o
	}
	if c.Key != nil && len(c.Key) != KeySize {
		return c, fmt.Errorf("disk: the key has %d bytes and not %d", len(c.Key), KeySize)
	}
	for i, key := range c.OldKeys {
		if c.Key == nil || len(key) != KeySize {
			return c, fmt.Errorf("disk: old key %d has %d bytes and not %d, or there is no key", i, len(key), KeySize)
		}
	}
	if c.Clock == nil {
		c.Clock = clock.System{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.KeepFree = orDefault(c.KeepFree, 256<<20)
	c.Ballast = orDefault(c.Ballast, 64<<20)
	c.Cache = orDefault(c.Cache, 64<<20)
	if c.fs == nil {
		c.fs = vfs.Default
	}
	if c.wait == nil {
		c.wait = (*group).wait
	}
	return c, nil
}

func orDefault(n, otherwise int64) int64 {
	switch {
	case n == 0:
		return otherwise
	case n < 0:
		return 0
	}
	return n
}

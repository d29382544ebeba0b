package disk

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/serverless/queue"
)

// A Clock has the time: Now, and AfterFunc(t, f), which calls f once Now has reached t and returns a
// stop that reports whether it prevented the call. f must not block. It is one type in all packages.
type Clock = clock.Clock

// An Observer gets what a store does. Its method must not block: all commits wait for it.
type Observer interface {
	// StoreCommitted is called after each commit: how long it took, until it was durable where it
	// had to be, and how many changes shared it.
	StoreCommitted(took time.Duration, changes int)
}

// Options configures a Store. The zero value and nil work.
type Options struct {
	// Key encrypts secrets: the credentials of registries, the s3Config of jobs and
	// schedules, and the environment variables that startSsh and startJupyter add to a pod.
	// Nothing else is encrypted: the API returns the variables that users set for pods,
	// templates and endpoints, and they are on disk in plain text. Key has KeySize bytes and
	// must be the same at every opening. Default: none; a change with a secret is then refused
	// with ErrNoKey.
	Key []byte
	// OldKeys are earlier values of Key. Opening the store encrypts their secrets again with
	// Key. After one successful opening OldKeys are not needed any more. An interrupted
	// opening leaves secrets of both keys; the next opening with the same options continues.
	OldKeys [][]byte
	// Clock times the pauses of Run. It also gives the time at which jobs are put back into
	// the queue at opening (see WorkerGone). Default: the system's clock.
	Clock Clock
	// Logger logs what no caller can see, such as a disk that fails or works again. Default:
	// nothing is logged.
	Logger *slog.Logger
	// KeepFree is how many bytes of the file system must stay free. With fewer free bytes new
	// work is refused; with less than half of KeepFree everything but deletions is refused. The
	// same is true of 1000 inodes, or a twentieth of all where that is less.
	// Default 256 MiB; negative: none.
	KeepFree int64
	// Ballast is the size in bytes of a reserve, which also has up to 200 inodes. If the disk is
	// full nevertheless, it is given up part by part, so that the store can be opened and things
	// can be deleted. Default 64 MiB; negative: none.
	Ballast int64
	// Cache is the size of the database's cache in bytes. The latest writes take more memory,
	// usually 128 MiB. Default 64 MiB.
	Cache int64
	// WorkerGone reports whether a worker is known to be gone that had a job when the store
	// was last closed. Workers of this process are an example. Opening the store puts the jobs
	// of such a worker back into the queue, without counting the delivery; a job that was
	// running at queue.MaxRestarts restarts fails. Default: no worker is known to be gone.
	// Jobs then stay with their workers until their leases end, so that a worker on another
	// machine can continue.
	WorkerGone func(queue.WorkerID) bool
	// Observer gets the commits of the store, for metrics. Default: none.
	Observer Observer

	// Only tests set these.
	fs       vfs.FS             // default: the system's
	memTable uint64             // bytes; default: 64 MiB, or 1 MiB for a file system in memory
	wait     func(*group) error // waits for the sync of a group; default: its method
	inodes   func(dir string) (free, total int64)
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
		c.fs = ownerOnly{vfs.Default}
	}
	if c.inodes == nil {
		c.inodes = freeInodes
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

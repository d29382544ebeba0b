package disk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/serverless/queue"
)

// Check verifies the store in dir, which no Store must have: every file, every record, and
// that records that belong together are there. It changes nothing. The faults are what Repair
// would drop. opts may be nil; its Key is the store's.
//
// The error says why it could not be checked. What is damaged is in the report.
func Check(ctx context.Context, dir string, opts *Options) (Report, error) {
	return repairDir(ctx, dir, opts, true)
}

// Repair drops what cannot be read of the store in dir, which no Store must have, and leaves
// the rest. The report names everything that was dropped. opts may be nil; its Key is the
// store's.
//
//   - A job whose state is lost is gone, with its payloads.
//   - A queued job whose input or secrets are lost ends as FAILED, with its webhook.
//   - A job whose output or a chunk is lost stays, and its reader is told as before.
//   - A pod or another record that is lost is gone. What runs for it is for its host to find.
//   - With another Key than the store's, what is sealed is lost: the credentials of registries,
//     what was injected into pods, and what only workers see of jobs. Key is the store's then.
//
// Until then such a store answers that what is not there may be lost, and claims nothing that
// a pod may have which is lost.
func Repair(ctx context.Context, dir string, opts *Options) (Report, error) {
	return repairDir(ctx, dir, opts, false)
}

func repairDir(ctx context.Context, dir string, opts *Options, dry bool) (r Report, err error) {
	s, err := newStore(dir, opts)
	if err != nil {
		return r, err
	}
	if _, err := s.opts.fs.Stat(dir); err != nil {
		return r, fmt.Errorf("disk: repair %q: %w", dir, err)
	}
	if err := s.acquire(); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.lock.Close()) }()
	if s.opts.WorkerGone = nil; dry {
		s.opts.fs, s.dry = newOverlay(s.opts.fs), true
	}
	s.report = &r
	if err := s.repair(ctx, &r); err != nil {
		return r, fmt.Errorf("disk: repair %q: %w", dir, err)
	}
	return r, nil
}

func (s *Store) repair(ctx context.Context, r *Report) error {
	err := s.verifyTables(ctx, true)
	if errors.Is(err, errManifest) || pebble.IsCorruptionError(err) {
		if err = s.rebuild(ctx); err == nil {
			err = s.verifyTables(ctx, true)
		}
	}
	if err != nil {
		return err
	}
	e, err := s.start(ctx) // isolates what could not be restored
	if err != nil {
		return err
	}
	if err := s.drop(ctx, e, r); err != nil {
		return errors.Join(err, e.stop())
	}
	if err := e.stop(); err != nil || s.dry {
		return err
	}
	return s.tidy(ctx)
}

// drop removes what is lost, or only says what is.
func (s *Store) drop(ctx context.Context, e *engine, r *Report) error {
	var found []finding
	i := e.inspection(e.db, r, func(f finding) { found = append(found, f) })
	if err := i.run(ctx); err != nil || s.dry {
		return err
	}
	for part := range slices.Chunk(found, repairStep) {
		if err := e.dropSome(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// repairStep is how many findings go into one commit.
const repairStep = 1000

func (e *engine) dropSome(ctx context.Context, found []finding) error {
	var ops []queue.Op
	err := e.commit(true, func(b *pebble.Batch) {
		for _, f := range found {
			switch f.what {
			case remove:
				drop(b, f.key)
			case unseal:
				if v, _, _ := e.get(f.key); e.withoutSealed(v) != nil { // else it is as it should be
					put(b, f.key, e.withoutSealed(v))
				}
			case note:
				putJSON(b, lossKey(f.key), loss{Job: f.job.Endpoint + "/" + string(f.job.ID), What: "it is lost", Known: true})
			case end:
				ops = append(ops, queue.Op{Ref: f.job, Kind: queue.OpDamage})
			}
		}
	}, nil)
	if err != nil || len(ops) == 0 {
		return err
	}
	// One that has lost two payloads has ended at the second op.
	_, err = e.jobs.apply(ctx, queue.At(e.s.opts.Clock.Now()), ops, make([]queue.Result, len(ops)))
	return err
}

// tidy removes the files that were kept aside, and gives a parity file to every table that
// has none.
func (s *Store) tidy(ctx context.Context) error {
	fs := s.opts.fs
	names, err := fs.List(s.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := fs.PathJoin(s.dir, name)
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		if _, err := readParity(fs, path); err == nil {
			continue
		}
		if err := errors.Join(ctx.Err(), makeParity(fs, path)); err != nil {
			return err
		}
	}
	return fs.RemoveAll(fs.PathJoin(s.dir, asideName))
}

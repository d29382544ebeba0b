package disk

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/serverless/queue"
)

// Check verifies every file and every record of the store in dir, and that records that belong
// together exist. No Store may have dir open. Check changes nothing. The faults in the report
// are what Repair would drop. opts may be nil; its Key must be the store's.
//
// The error is only the reason why the store could not be checked. Damage is in the report.
func Check(ctx context.Context, dir string, opts *Options) (Report, error) {
	return repairDir(ctx, dir, opts, true)
}

// Repair drops the unreadable parts of the store in dir and keeps the rest. No Store may have
// dir open. The report lists everything that was dropped. opts may be nil; its Key should be
// the store's.
//
//   - A job whose state is lost is removed, with its payloads.
//   - A queued job whose input or secrets are lost ends as FAILED, with its webhook.
//   - A job whose output or chunk is lost stays. Reading it still returns an error.
//   - A pod or another record that is lost is removed. A host then has to find what still
//     runs for a lost pod.
//   - If Key is not the store's, everything encrypted is lost: the credentials of registries,
//     the variables injected into pods, and the data of jobs for workers only. Key is then the
//     key of the store.
//
// Before the repair, such a store returns an error instead of "not found", and does not claim
// resources that a lost pod may have claimed.
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
	if errors.Is(err, ErrDamaged) && !errors.Is(err, errManifest) {
		s.logs.strict = true
		err = s.verifyTables(ctx, true)
	}
	if errors.Is(err, ErrDamaged) {
		if err = s.rebuild(ctx); err == nil {
			err = s.verifyTables(ctx, true)
		}
	}
	if err != nil {
		return err
	}
	e, err := s.start(ctx) // isolates damage
	if err != nil {
		return err
	}
	if err := s.drop(ctx, e, r); err != nil {
		return errors.Join(err, e.stop())
	}
	if err := e.stop(); err != nil || s.dry {
		return err
	}
	return s.opts.fs.RemoveAll(s.opts.fs.PathJoin(s.dir, asideName))
}

// drop removes lost records, or in a check only reports them.
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
	err := e.commit(func(b *pebble.Batch) {
		for _, f := range found {
			switch f.what {
			case remove:
				drop(b, f.key)
			case unseal:
				if v, _, _ := e.get(f.key); e.withoutSealed(v) != nil { // otherwise it is already repaired
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
	// A job that has lost two payloads ends with the first op. The second one has no effect.
	_, err = e.jobs.apply(ctx, queue.At(e.s.opts.Clock.Now()), ops, make([]queue.Result, len(ops)))
	return err
}

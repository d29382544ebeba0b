package serverless

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/queue"
)

// ErrNoDeadLetter means that a job has no dead letter.
var ErrNoDeadLetter = problem.New(problem.NotFound, "dead letter not found")

// Attempts returns the attempts of a job's present run, oldest first: those that another one
// followed, and the present or last one if a worker has had it (docs/decisions.md 39). Errors are
// those of Get.
func (s *Service) Attempts(ctx context.Context, owner string, ref Ref) (list []queue.JobAttempt, err error) {
	var j Job
	for range 3 { // the job may move between the two reads
		if j, err = s.find(ctx, owner, ref); err != nil && !errors.Is(err, ErrDamaged) {
			return nil, err
		}
		if list, err = s.queue.PastAttempts(ctx, s.now(), ref); err != nil {
			return nil, err
		}
		if len(list) == int(j.Attempt) {
			break
		}
	}
	list = list[:min(len(list), int(j.Attempt))]
	if last, ok := j.LastAttempt(); ok {
		list = append(list, last)
	}
	return list, nil
}

// Leases returns the leases of a job after which it was queued again, oldest first: the last
// queue.MaxLeases of State.Leases. The state is that of the job. Errors are those of Get.
func (s *Service) Leases(ctx context.Context, owner string, ref Ref) (list []queue.JobLease, st queue.State, err error) {
	j, err := s.findState(ctx, owner, ref)
	if err != nil || j.Leases == 0 {
		return nil, j.State, err
	}
	list, err = s.queue.PastLeases(ctx, s.now(), ref)
	return list, j.State, err
}

// Renewed returns when the lease of a job in progress was last renewed; 0 if it was not, or if that
// is not known.
func (s *Service) Renewed(st *queue.State) Instant {
	if st.Status != InProgress {
		return 0
	}
	for _, lease := range []time.Duration{s.lease, s.localLease} {
		if at := st.LeaseUntil.Add(-lease); at <= s.now() {
			if at > st.Started {
				return at
			}
			return 0
		}
	}
	return 0
}

// maxListed is the most bytes of payloads that are read for one list of dead letters.
const maxListed = 64 << 20

// DeadLetters returns the dead letters of an endpoint, newest first, without input and output
// (docs/decisions.md 40): those of owner, or of AllOwners. They have their errors, as far as 64 MB
// of payloads are read for that. It returns ErrNoEndpoint for an unknown endpoint.
func (s *Service) DeadLetters(ctx context.Context, owner, endpoint string) (list []queue.DeadLetter, err error) {
	if _, err := s.endpoints.Get(ctx, endpoint); err != nil {
		return nil, err
	}
	for d, err := range s.queue.DeadLetters(ctx, s.now(), endpoint, ownerFilter(owner)) {
		if err != nil {
			return nil, fmt.Errorf("serverless: dead letters of %q: %w", endpoint, err)
		}
		list = append(list, d)
	}
	return list, s.readErrors(ctx, owner, list)
}

// readErrors adds their errors to dead letters. Those that are gone or damaged get none.
func (s *Service) readErrors(ctx context.Context, reader string, list []queue.DeadLetter) error {
	size := int64(0)
	for i := range list {
		d := &list[i]
		if size += d.Bytes(); size > maxListed {
			return nil
		}
		full, err := s.readDead(ctx, reader, d.Ref)
		switch {
		case err == nil:
			d.Error = full.Error
		case !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrDamaged):
			return fmt.Errorf("serverless: dead letter %q: %w", d.ID, err)
		}
	}
	return nil
}

// readDead returns a dead letter with its payloads, when reader may read another job.
func (s *Service) readDead(ctx context.Context, reader string, ref Ref) (queue.DeadLetter, error) {
	release, err := s.mayRead(ctx, reader)
	if err != nil {
		return queue.DeadLetter{}, err
	}
	defer release()
	return s.queue.DeadLetter(ctx, s.now(), ref)
}

// DeadLetter returns the dead letter of a job with its payloads. It returns ErrNoDeadLetter if
// there is none, or if it is another user's, and ErrNoEndpoint for an unknown endpoint.
func (s *Service) DeadLetter(ctx context.Context, owner string, ref Ref) (queue.DeadLetter, error) {
	d, err := s.queue.DeadLetter(ctx, s.now(), ref)
	if (err == nil || errors.Is(err, ErrDamaged)) && d.Owner != owner {
		err = ErrNotFound
	}
	if !errors.Is(err, ErrNotFound) {
		return d, err
	}
	if _, err := s.endpoints.Get(ctx, ref.Endpoint); err != nil {
		return d, err
	}
	return d, ErrNoDeadLetter
}

// DeadLetterOwner returns whose a dead letter is. Errors are those of DeadLetter.
func (s *Service) DeadLetterOwner(ctx context.Context, ref Ref) (string, error) {
	d, err := s.queue.DeadLetter(ctx, s.now(), ref)
	if err != nil && !errors.Is(err, ErrDamaged) {
		return "", err
	}
	return d.Owner, nil
}

// Redrive submits the job of a dead letter again, as a new job with all that was submitted, and
// deletes the dead letter. The new job lives as long as the old one was to live. It makes one new
// job, however often a call is repeated. It returns ErrInputLost if the input was damaged; other
// errors are those of DeadLetter.
func (s *Service) Redrive(ctx context.Context, owner string, ref Ref) (Job, error) {
	d, err := s.DeadLetter(ctx, owner, ref)
	if err != nil && !errors.Is(err, ErrDamaged) {
		return Job{}, err
	}
	if _, err := s.eps.Visible(ctx, owner, ref.Endpoint); err != nil {
		return Job{}, err
	}
	if d.Input == nil {
		return Job{}, queue.ErrInputLost
	}
	j, err := s.enqueue(ctx, redriven(&d, s.now()))
	if errors.Is(err, queue.ErrExists) { // by an earlier call, which was cut off
		j, err = s.find(ctx, owner, redriven(&d, 0).Ref)
	}
	if err != nil {
		return Job{}, err
	}
	return j, s.queue.DropDead(ctx, []Ref{ref})
}

// redriven returns the new job of a dead letter. Its id comes from the dead letter, so that it is
// made once.
func redriven(d *queue.DeadLetter, now Instant) Job {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d/%d", d.Endpoint, d.ID, d.Run, d.Finished))
	life := min(max(d.Expires.Sub(d.Submitted), MinTTL), MaxTTL)
	terms := d.Terms
	if d.Flags&queue.KeepsResult == 0 {
		terms.Retain = RunRetention
	}
	return Job{
		Ref: Ref{Endpoint: d.Endpoint, ID: formatID([16]byte(sum[:]), false)}, Owner: d.Owner, Key: d.Key,
		Input: d.Input, Webhook: d.Webhook, Extra: d.Extra, Trace: d.Trace,
		State: queue.State{
			Submitted: now, Queued: now, Expires: now.Add(life), Flags: d.Flags &^ (queue.Sync | queue.DurableAtEnd),
			Priority: d.Priority, Terms: terms,
		},
	}
}

// DropDeadLetter deletes the dead letter of a job. Errors are those of DeadLetter.
func (s *Service) DropDeadLetter(ctx context.Context, owner string, ref Ref) error {
	if _, err := s.DeadLetter(ctx, owner, ref); err != nil && !errors.Is(err, ErrDamaged) {
		return err
	}
	return s.queue.DropDead(ctx, []Ref{ref})
}

// dropAllDead deletes the dead letters of an owner on an endpoint, or of AllOwners.
func (s *Service) dropAllDead(ctx context.Context, owner, endpoint string) error {
	var refs []Ref
	for d, err := range s.queue.DeadLetters(ctx, s.now(), endpoint, ownerFilter(owner)) {
		if err != nil {
			return fmt.Errorf("serverless: dead letters of %q: %w", endpoint, err)
		}
		refs = append(refs, d.Ref)
	}
	if len(refs) == 0 {
		return nil
	}
	return s.queue.DropDead(ctx, refs)
}

// deadLetterTime returns how long the dead letters of an endpoint are kept.
func deadLetterTime(ep *Endpoint) time.Duration {
	return min(ep.QueueSettings().DeadLetter, queue.MaxDeadLetter).Truncate(time.Millisecond)
}

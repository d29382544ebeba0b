package disk

import (
	"errors"
	"testing"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// failed returns a job of the store that has failed with an output, and has a dead letter.
func failed(t *testing.T, s *Store, id string) queue.Job {
	t.Helper()
	j := newJob(id)
	j.DeadLetter = time.Hour
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j}))
	c := claimOne(t, s.Jobs(), "w")
	must(t, applyOne(t, s.Jobs(), queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Worker: "w", Token: c.Token, Status: queue.Failed, Payload: []byte(`"out"`), Error: "no"}).Err)
	return j
}

// While the record of a dead letter is damaged, no answer says that there is none. Its job is not
// affected.
func TestADamagedDeadLetterIsNotMissing(t *testing.T) {
	s := memStore(t)
	a, b := failed(t, s, "a"), failed(t, s, "b")
	corruptRecord(t, s, uidKey(keyDead, uidOf(t, s, a.Ref)))
	s = reopen(t, s)
	if _, err := s.Jobs().DeadLetter(t.Context(), at+10, a.Ref); !errors.Is(err, ErrDamaged) {
		t.Errorf("DeadLetter = %v, want ErrDamaged", err)
	}
	if d, err := s.Jobs().DeadLetter(t.Context(), at+10, b.Ref); err != nil || string(d.Output) != `"out"` {
		t.Errorf("another DeadLetter = %s, %v, want it", d.Output, err)
	}
	var last error
	for _, last = range s.Jobs().DeadLetters(t.Context(), at+10, "echo", "") {
	}
	if !errors.Is(last, ErrDamaged) {
		t.Errorf("the list ends with %v, want ErrDamaged", last)
	}
	if got := getJob(t, s.Jobs(), a.Ref); string(got.Output) != `"out"` {
		t.Errorf("the job has output %s, want its own", got.Output)
	}
}

// The payloads of a job stay while its dead letter needs them, and go with it.
func TestADeadLetterKeepsThePayloadsOfItsJobAndNoLonger(t *testing.T) {
	s := memStore(t)
	j := failed(t, s, "a")
	uid := uidOf(t, s, j.Ref)
	must(t, applyOne(t, s.Jobs(), queue.Op{Ref: j.Ref, Kind: queue.OpSetTTL, Until: at + 1000}).Err)
	_, err := s.Jobs().Expire(t.Context(), at+1000, 10)
	must(t, err)
	count := func() (n int) {
		e, err := s.engine()
		must(t, err)
		for _, kind := range []byte{keyJob, keyBody, keyDead} {
			must(t, each(e.db, uidKey(kind, uid), func([]byte, []byte) error { n++; return nil }))
		}
		return n
	}
	for range 2 {
		if d, err := s.Jobs().DeadLetter(t.Context(), at+1000, j.Ref); err != nil || string(d.Output) != `"out"` || count() != 3 {
			t.Errorf("DeadLetter = %s, %v in %d records, want the output, in 3", d.Output, err, count())
		}
		s = reopen(t, s)
	}
	must(t, s.Jobs().DropDead(t.Context(), []queue.Ref{j.Ref}))
	if n := count(); n != 0 {
		t.Errorf("%d records are left of a dead letter that was deleted, want none", n)
	}
}

// The input that a job no longer has stays while its dead letter needs it, and goes with it.
func TestADeadLetterKeepsTheInputOfItsJobAndNoLonger(t *testing.T) {
	s := memStore(t)
	j := failed(t, s, "a")
	key := bodyKey(uidOf(t, s, j.Ref), bodyInput)
	must(t, applyOne(t, s.Jobs(), queue.Op{Ref: j.Ref, Kind: queue.OpDropInput}).Err)
	for range 2 {
		d, err := s.Jobs().DeadLetter(t.Context(), at+10, j.Ref)
		if err != nil || string(d.Input) != string(j.Input) {
			t.Errorf("DeadLetter has input %q, %v, want %q", d.Input, err, j.Input)
		}
		if got := getJob(t, s.Jobs(), j.Ref); got.Input != nil {
			t.Errorf("the job has input %q, want none", got.Input)
		}
		s = reopen(t, s)
	}
	must(t, s.Jobs().DropDead(t.Context(), []queue.Ref{j.Ref}))
	e, err := s.engine()
	must(t, err)
	if v, ok, err := e.get(key); ok || err != nil {
		t.Errorf("the input is %q, %v after the dead letter was deleted, want none", v, err)
	}
}

// A damaged log of attempts is an error, and the job goes on.
func TestADamagedAttemptDoesNotEndItsJob(t *testing.T) {
	s := memStore(t)
	j := newJob("a")
	j.Retry = queue.RetryPolicy{Attempts: 3, Factor: 1, Delay: time.Second, MaxDelay: time.Second}
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j}))
	c := claimOne(t, s.Jobs(), "w")
	must(t, applyOne(t, s.Jobs(), queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Worker: "w", Token: c.Token, Status: queue.Failed}).Err)
	corruptRecord(t, s, tryKey(uidOf(t, s, j.Ref), 0, 1))
	if _, err := s.Jobs().PastAttempts(t.Context(), at+10, j.Ref); !errors.Is(err, queue.ErrDamaged) {
		t.Errorf("PastAttempts = %v, want ErrDamaged", err)
	}
	r, err := s.Check(t.Context())
	must(t, err)
	if len(r.Faults) != 1 || r.Faults[0].Job != "echo/a" {
		t.Errorf("Check finds %q, want the attempt, of its job", r.Faults)
	}
	if got := getJob(t, s.Jobs(), j.Ref); got.Status != queue.InQueue || got.Attempt != 1 {
		t.Errorf("the job is %v after %d attempts, want IN_QUEUE after 1", got.Status, got.Attempt)
	}
}

// A damaged log of leases is an error, and the job goes on. Its deletion leaves nothing of the log.
func TestADamagedLeaseDoesNotEndItsJob(t *testing.T) {
	s := memStore(t)
	j := newJob("a")
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j}))
	for range 2 {
		c := claimOne(t, s.Jobs(), "w")
		must(t, applyOne(t, s.Jobs(), queue.Op{Ref: j.Ref, Kind: queue.OpRelease, Worker: "w", Token: c.Token}).Err)
	}
	uid := uidOf(t, s, j.Ref)
	corruptRecord(t, s, leaseKey(uid, 1))
	if _, err := s.Jobs().PastLeases(t.Context(), at+10, j.Ref); !errors.Is(err, queue.ErrDamaged) {
		t.Errorf("PastLeases = %v, want ErrDamaged", err)
	}
	r, err := s.Check(t.Context())
	must(t, err)
	if len(r.Faults) != 1 || r.Faults[0].Job != "echo/a" {
		t.Errorf("Check finds %q, want the lease, of its job", r.Faults)
	}
	if got := getJob(t, s.Jobs(), j.Ref); got.Status != queue.InQueue || got.Leases != 2 {
		t.Errorf("the job is %v after %d leases, want IN_QUEUE after 2", got.Status, got.Leases)
	}
	for _, kind := range []queue.OpKind{queue.OpCancel, queue.OpDelete} {
		must(t, applyOne(t, s.Jobs(), queue.Op{Ref: j.Ref, Kind: kind}).Err)
	}
	e, err := s.engine()
	must(t, err)
	must(t, each(e.db, uidKey(keyBody, uid), func(key, _ []byte) error {
		t.Errorf("the record %x is left of a job that was deleted", key)
		return nil
	}))
}

// The older value of a lease is not taken for a newer one that is lost.
func TestOfALeaseThatIsLostNoOlderOneIsShown(t *testing.T) {
	for kind, want := range map[byte]bool{bodyInput: true, bodyChunk: true, bodyTry: true, bodyLease: false} {
		if got := writtenOnce(bodyKey(1, kind)); got != want {
			t.Errorf("writtenOnce of the kind %d = %v, want %v", kind, got, want)
		}
	}
}

package disk

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/serverlesstest"
)

// corruptRecord changes a byte of a record without changing its checksum in the record.
func corruptRecord(t testing.TB, s *Store, key []byte) {
	t.Helper()
	e, err := s.engine()
	must(t, err)
	v, closer, err := e.db.Get(key)
	must(t, err)
	rotten := append([]byte{}, v...)
	must(t, closer.Close())
	rotten[0] ^= 1
	must(t, e.db.Set(key, rotten, pebble.Sync))
}

// uidOf returns the uid of a job.
func uidOf(t testing.TB, s *Store, ref queue.Ref) uint64 {
	t.Helper()
	e, err := s.engine()
	must(t, err)
	uid, ok := e.jobs.uidOf(ref)
	if !ok {
		t.Fatalf("%v is not there", ref)
	}
	return uid
}

func TestADamagedInput(t *testing.T) {
	serverlesstest.TestDamage(t, func(t *testing.T) serverlesstest.Damager {
		s := memStore(t)
		return serverlesstest.Damager{Queue: s.Jobs(), Damage: func(ref queue.Ref) {
			corruptRecord(t, s, bodyKey(uidOf(t, s, ref), bodyInput))
		}}
	})
}

// jobWithWebhook returns a job with a webhook and a secret.
func jobWithWebhook(id string) queue.Job {
	j := newJob(id)
	j.Webhook, j.Flags, j.Extra = "https://example.org/hook", queue.HasWebhook, []byte(`{"s3Config":{}}`)
	return j
}

func deliveries(t testing.TB, s *Store) []queue.Delivery {
	t.Helper()
	ds, err := s.Jobs().Deliveries(t.Context(), at+10, at+100, 10)
	must(t, err)
	loadAll(t, s, ds)
	return ds
}

// loadAll reads the payloads of deliveries.
func loadAll(t testing.TB, s *Store, ds []queue.Delivery) {
	t.Helper()
	for i := range ds {
		must(t, s.Jobs().LoadDelivery(t.Context(), &ds[i]))
	}
}

// A job whose webhook and secret are damaged is not given to a worker. The address of its
// webhook is lost, and the log of attempts says so.
func TestDamagedExtrasEndAQueuedJob(t *testing.T) {
	s := memStore(t)
	j := jobWithWebhook("a")
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j, newJob("b")}))
	corruptRecord(t, s, bodyKey(uidOf(t, s, j.Ref), bodyExtras))
	if got := claimOne(t, s.Jobs(), "w"); got.ID != "b" {
		t.Errorf("Claim gave %q, want b", got.ID)
	}
	for range 2 {
		if got := getJob(t, s.Jobs(), j.Ref); got.Status != queue.Failed || got.Reason != queue.Damaged || got.Extra != nil {
			t.Errorf("the job is %v for reason %v, want FAILED as damaged, without secrets", got.Status, got.Reason)
		}
		s = reopen(t, s)
	}
	if ds := deliveries(t, s); len(ds) != 1 || ds[0].Fault == "" {
		t.Errorf("Deliveries = %+v, want one with a fault", ds)
	}
}

// A damaged output is never returned, as a result or in a webhook, and neither is other data
// instead. Everything that does not need the output still works.
func TestADamagedOutputIsAnError(t *testing.T) {
	s := memStore(t)
	ctx := t.Context()
	j := jobWithWebhook("a")
	must(t, s.Jobs().Enqueue(ctx, []queue.Job{j, newJob("b")}))
	c := claimOne(t, s.Jobs(), "w")
	must(t, applyOne(t, s.Jobs(), queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Worker: "w", Token: c.Token, Status: queue.Failed, Payload: []byte(`"out"`), Error: "no"}).Err)
	corruptRecord(t, s, outputKey(uidOf(t, s, j.Ref), 1))
	s = reopen(t, s)
	got, err := s.Jobs().Get(ctx, at+3, j.Ref)
	unavailableError(t, "Get", err)
	if !errors.Is(err, queue.ErrDamaged) || !errors.Is(err, ErrDamaged) || got.Status != queue.Failed || got.Owner != "alice" || got.Output != nil || got.Error != "" {
		t.Errorf("Get = %+v, %v, want the job without its output, and ErrDamaged", got, err)
	}
	ds := deliveries(t, s)
	if len(ds) != 1 || ds[0].Fault == "" || ds[0].Job.Output != nil {
		t.Fatalf("Deliveries = %+v, want one with a fault", ds)
	}
	must(t, s.Jobs().Record(ctx, []queue.Attempt{{Ref: j.Ref, DeliveryID: ds[0].ID, Token: ds[0].Token, At: at + 10, Err: ds[0].Fault}}))
	if as, err := s.Jobs().Attempts(ctx, j.Ref); err != nil || len(as) != 1 || as[0].Err == "" {
		t.Errorf("Attempts = %+v, %v, want one that says why", as, err)
	}
	r, err := s.Check(ctx)
	must(t, err)
	if len(r.Faults) != 1 || !strings.HasPrefix(r.Faults[0].Key, "a payload ") {
		t.Errorf("Check finds %v, want the payload", r.Faults)
	}
	must(t, applyOne(t, s.Jobs(), queue.Op{Ref: j.Ref, Kind: queue.OpRetry}).Err)
	for _, id := range []queue.JobID{"b", "a"} {
		c := claimOne(t, s.Jobs(), "w")
		if c.ID != id {
			t.Fatalf("Claim gave %q, want %q", c.ID, id)
		}
		finish(t, s.Jobs(), &c, `"`+string(id)+`"`)
	}
	if got := getJob(t, s.Jobs(), j.Ref); string(got.Output) != `"a"` {
		t.Errorf("the output of the second run is %s", got.Output)
	}
}

// A stream is returned up to a damaged chunk. The job continues.
func TestADamagedChunkIsAnError(t *testing.T) {
	s := memStore(t)
	j := newJob("a")
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j}))
	c := claimOne(t, s.Jobs(), "w")
	for _, text := range []string{"one", "two"} {
		must(t, applyOne(t, s.Jobs(), queue.Op{Ref: j.Ref, Kind: queue.OpChunk, Worker: "w", Token: c.Token, Payload: []byte(text)}).Err)
	}
	forgetTails(t, s)
	corruptRecord(t, s, chunkKey(uidOf(t, s, j.Ref), 0, 1))
	if chunks, _, err := s.Jobs().Chunks(t.Context(), at+3, j.Ref, 1<<20); err != nil || len(chunks) != 1 || string(chunks[0]) != "one" {
		t.Errorf("Chunks before the damaged one = %q, %v", chunks, err)
	}
	must(t, applyOne(t, s.Jobs(), queue.Op{Ref: j.Ref, Kind: queue.OpDrain, Token: c.Token, N: 1, Bytes: 3}).Err)
	_, _, err := s.Jobs().Chunks(t.Context(), at+3, j.Ref, 1<<20)
	unavailableError(t, "Chunks", err)
	finish(t, s.Jobs(), &c, `"done"`)
	if got := getJob(t, s.Jobs(), j.Ref); string(got.Output) != `"done"` {
		t.Errorf("the output is %s", got.Output)
	}
}

// forgetTails has the store write all chunks and read them from the database.
func forgetTails(t *testing.T, s *Store) {
	t.Helper()
	e := s.current.Load()
	must(t, e.commit(func(*pebble.Batch) {}, nil))
	e.jobs.mu.Lock()
	defer e.jobs.mu.Unlock()
	e.jobs.tails = tails{by: map[uint32]*tail{}}
}

// A damaged webhook entry does not affect other webhooks, and can be settled.
func TestADamagedEntryIsPassedOver(t *testing.T) {
	s := memStore(t)
	ctx := t.Context()
	for _, id := range []string{"a", "b"} {
		must(t, s.Jobs().Enqueue(ctx, []queue.Job{jobWithWebhook(id)}))
		c := claimOne(t, s.Jobs(), "w")
		finish(t, s.Jobs(), &c, "1")
	}
	corruptRecord(t, s, entryKey(uidOf(t, s, newJob("a").Ref), 0))
	ds := deliveries(t, s)
	if len(ds) != 1 || ds[0].Job.ID != "b" {
		t.Fatalf("Deliveries = %+v, want that of b", ds)
	}
	corruptRecord(t, s, entryKey(uidOf(t, s, newJob("b").Ref), 0)) // known since it was read
	must(t, s.Jobs().Record(ctx, []queue.Attempt{{Ref: ds[0].Job.Ref, DeliveryID: ds[0].ID, Token: ds[0].Token, At: at + 10, Next: at + 20}}))
	ds, err := s.Jobs().Deliveries(ctx, at+20, at+100, 10)
	must(t, err)
	if len(ds) != 1 || ds[0].Job.ID != "b" || ds[0].Tries != 1 {
		t.Errorf("Deliveries = %+v, want that of b with one try", ds)
	}
}

// A read error that is not damage leaves the job as it is, and does not block other jobs.
func TestAReadThatFailsIsNoDamage(t *testing.T) {
	var broken atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind == errorfs.OpFileReadAt {
			return syscall.EIO
		}
		return nil
	}))
	s := openForTest(t, "store", inMemory(fs))
	old := newJob("a")
	old.Input = append(old.Input, make([]byte, 2*bigPayload)...) // stored in a table of its own
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{old}))
	s = reopen(t, s)
	slots := []queue.Slot{{Endpoint: "echo", Worker: "w", N: 1, Until: at + 30_000}}
	broken.Store(true)
	if jobs, err := s.Jobs().Claim(t.Context(), at, slots, nil); err == nil || len(jobs) != 0 {
		t.Errorf("Claim = %d jobs, %v, want an error", len(jobs), err)
	}
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("b")})) // still in memory
	if got := claimOne(t, s.Jobs(), "w"); got.ID != "b" {
		t.Errorf("Claim gave %q, want b, which can be read", got.ID)
	}
	broken.Store(false)
	// The database reads tables in the background. A failed attempt to open a table may make
	// one more claim fail.
	jobs, err := s.Jobs().Claim(t.Context(), at, slots, nil)
	for err != nil {
		jobs, err = s.Jobs().Claim(t.Context(), at, slots, nil)
	}
	if len(jobs) != 1 || jobs[0].ID != "a" || len(jobs[0].Input) != len(old.Input) {
		t.Errorf("Claim gave %d jobs, want a", len(jobs))
	}
}

// A damaged record of any kind, in a block with a valid checksum, does not prevent the opening
// of the store. Repair drops it and names it.
func TestADamagedRecordOfAnyKindIsDropped(t *testing.T) {
	suite.SkipUnlessLong(t)
	for kind, what := range kindNames {
		if kind == keyGap || kind == keyLoss || kind == keyIntent {
			continue // written only by this package
		}
		t.Run(what, func(t *testing.T) {
			mem, _ := furnished(t, true)
			s := openForTest(t, "store", inMemory(mem))
			e, err := s.engine()
			must(t, err)
			var key []byte
			must(t, each(e.db, []byte{kind}, func(k, _ []byte) error {
				key = bytes.Clone(k)
				return nil
			}))
			if key == nil {
				t.Skip("the fixture has none")
			}
			corruptRecord(t, s, key)
			must(t, s.Close())
			again, err := Open(t.Context(), "store", inMemory(cloned(t, mem)))
			must(t, err)
			must(t, again.Close())
			_, r := repairedStore(t, mem)
			// A damaged setting is replaced by the opening.
			if len(r.Faults) == 0 && kind != keyMeta {
				t.Errorf("the damage of %s is not named", name(key))
			}
		})
	}
}

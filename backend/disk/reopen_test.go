package disk

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
)

const at = queue.Instant(1_780_000_000_000)

func newJob(id string) queue.Job {
	return queue.Job{
		Ref: queue.Ref{Endpoint: "echo", ID: queue.JobID(id)}, Owner: "alice",
		Input: []byte(`{"n":"` + id + `"}`),
		State: queue.State{Submitted: at, Queued: at, Expires: at + 86_400_000, Terms: queue.Terms{ExecTimeout: 10 * time.Minute, Retain: 30 * time.Minute}},
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func reopen(t testing.TB, s *Store) *Store {
	t.Helper()
	must(t, s.Close())
	return openForTest(t, s.dir, &s.opts)
}

func claimOne(t testing.TB, q *Jobs, worker string) queue.Job {
	t.Helper()
	jobs, err := q.Claim(t.Context(), at+1, []queue.Slot{{Endpoint: "echo", Worker: queue.WorkerID(worker), N: 1, Until: at + 30_000}}, nil)
	must(t, err)
	if len(jobs) != 1 {
		t.Fatalf("Claim gave %d jobs, want 1", len(jobs))
	}
	return jobs[0]
}

func applyOne(t testing.TB, q *Jobs, op queue.Op) queue.Result {
	t.Helper()
	res := make([]queue.Result, 1)
	must(t, q.Apply(t.Context(), at+2, []queue.Op{op}, res))
	return res[0]
}

func finish(t testing.TB, q *Jobs, j *queue.Job, output string) {
	t.Helper()
	r := applyOne(t, q, queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Worker: j.Worker, Token: j.Token, Status: queue.Completed, Payload: []byte(output)})
	must(t, r.Err)
}

func getJob(t testing.TB, q *Jobs, ref queue.Ref) queue.Job {
	t.Helper()
	j, err := q.Get(t.Context(), at+3, ref)
	must(t, err)
	return j
}

func TestEverythingIsThereAfterReopening(t *testing.T) {
	s := memStore(t)
	ctx := t.Context()
	made := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	must(t, s.Pods().Create(ctx, &pods.Pod{ID: "p1", Owner: "alice", Created: made, Placement: pods.Placement{Host: "h", Claims: []pods.Claim{{Resource: "gpu/1", Units: 1, Limit: 1}}}}))
	must(t, s.Registries().Create(ctx, registries.Registry{ID: "r1", Owner: "alice", Name: "hub", Created: made}, registries.Credential{Username: "u", Password: "pw"}))
	must(t, s.Endpoints().Create(ctx, &endpoints.Endpoint{ID: "echo", Name: "Echo", Created: made}))
	queued, run, over, hooked := newJob("queued"), newJob("run"), newJob("over"), newJob("hooked")
	hooked.Webhook, hooked.Flags, hooked.Extra = "https://example.org/hook", queue.HasWebhook, []byte(`{"s3Config":{"accessSecret":"hush"}}`)
	big := newJob("big")
	big.Input = make([]byte, 3*bigPayload)
	for _, j := range []queue.Job{over, hooked, run, queued, big} {
		must(t, s.Jobs().Enqueue(ctx, []queue.Job{j}))
	}
	for _, out := range []string{`"one"`, `"two"`} {
		j := claimOne(t, s.Jobs(), "w")
		finish(t, s.Jobs(), &j, out)
	}
	j := claimOne(t, s.Jobs(), "w")
	must(t, applyOne(t, s.Jobs(), queue.Op{Ref: j.Ref, Kind: queue.OpChunk, Worker: "w", Token: j.Token, Payload: []byte("chunk")}).Err)
	var before []queue.Job
	for _, j := range []queue.Job{queued, run, over, hooked, big} {
		before = append(before, getJob(t, s.Jobs(), j.Ref))
	}
	stats, err := s.Jobs().Stats(ctx, at, "echo", nil)
	must(t, err)

	s = reopen(t, s)
	var after []queue.Job
	for _, j := range []queue.Job{queued, run, over, hooked, big} {
		after = append(after, getJob(t, s.Jobs(), j.Ref))
	}
	if diff := cmp.Diff(before, after, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("jobs (-before +after):\n%s", diff)
	}
	again, err := s.Jobs().Stats(ctx, at, "echo", nil)
	must(t, err)
	if diff := cmp.Diff(stats, again); diff != "" {
		t.Errorf("Stats (-before +after):\n%s", diff)
	}
	chunks, _, err := s.Jobs().Chunks(ctx, at+3, run.Ref, 1<<20)
	must(t, err)
	if len(chunks) != 1 || string(chunks[0]) != "chunk" {
		t.Errorf("Chunks = %q, want the one of before", chunks)
	}
	ds, err := s.Jobs().Deliveries(ctx, at+10, at+100, 10)
	must(t, err)
	loadAll(t, s, ds)
	if len(ds) != 1 || ds[0].Job.ID != "hooked" || string(ds[0].Job.Output) != `"two"` || ds[0].Job.Webhook != hooked.Webhook {
		t.Errorf("Deliveries = %+v, want the webhook of hooked", ds)
	}
	if p, err := s.Pods().Get(ctx, "p1"); err != nil || p.Placement.Host != "h" {
		t.Errorf("Get of a pod = %v, %v", p, err)
	}
	if err := s.Pods().Create(ctx, &pods.Pod{ID: "p2", Placement: pods.Placement{Claims: []pods.Claim{{Resource: "gpu/1", Units: 1, Limit: 1}}}}); !errors.Is(err, pods.ErrNoCapacity) {
		t.Errorf("Create of a pod with a claim that is taken = %v, want ErrNoRoom", err)
	}
	if _, c, err := s.Registries().Get(ctx, "r1"); err != nil || c.Password != "pw" {
		t.Errorf("Get of a registry: %v; the password must be the one of before", err)
	}
	if e, err := s.Endpoints().Get(ctx, "echo"); err != nil || e.Name != "Echo" {
		t.Errorf("Get of an endpoint = %v, %v", e, err)
	}
	r, err := s.Check(ctx)
	must(t, err)
	must(t, r.Err())
}

func TestTokensOfAnEarlierOpeningAreNeverIssuedAgain(t *testing.T) {
	s := memStore(t)
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("a"), newJob("b")}))
	first := claimOne(t, s.Jobs(), "w")
	s = reopen(t, s)
	if second := claimOne(t, s.Jobs(), "w"); second.Token <= first.Token || second.Token>>32 == first.Token>>32 {
		t.Errorf("token %x after %x: want one of a later epoch", second.Token, first.Token)
	}
}

func TestJobsOfWorkersThatAreGoneAreHandedBackAtOpening(t *testing.T) {
	opts := inMemory(vfs.NewMem())
	opts.Clock = frozenClock{at.Time().Add(5 * time.Millisecond)}
	opts.WorkerGone = func(w queue.WorkerID) bool { return w == "local" }
	s := openForTest(t, "store", opts)
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("a"), newJob("b")}))
	local, remote := claimOne(t, s.Jobs(), "local"), claimOne(t, s.Jobs(), "remote")
	s = reopen(t, s)
	if got := getJob(t, s.Jobs(), local.Ref); got.Status != queue.InQueue || got.Restarts != 1 {
		t.Errorf("the job of a worker of this process is %v with %d restarts, want IN_QUEUE with 1", got.Status, got.Restarts)
	}
	finish(t, s.Jobs(), &remote, "1") // a worker on another machine continues
}

// A frozenClock always returns the same time.
type frozenClock struct{ t time.Time }

func (f frozenClock) Now() time.Time                            { return f.t }
func (frozenClock) AfterFunc(time.Time, func()) (s func() bool) { return func() bool { return true } }

func TestAnotherKeyIsRefused(t *testing.T) {
	s := memStore(t)
	must(t, s.Close())
	opts := s.opts
	opts.Key = []byte("another key, which has 32 bytes!")
	if _, err := Open(t.Context(), s.dir, &opts); !errors.Is(err, ErrKey) {
		t.Errorf("Open with another key = %v, want ErrKey", err)
	}
	opts.Key = nil
	if _, err := Open(t.Context(), s.dir, &opts); !errors.Is(err, ErrKey) {
		t.Errorf("Open without the key = %v, want ErrKey", err)
	}
}

// A repair with another key drops only the encrypted data.
func TestARepairWithAnotherKeyDropsWhatIsSealed(t *testing.T) {
	mem, text := furnished(t, true)
	want := factsOf(text)
	opts := inMemory(mem)
	opts.Key, opts.Clock = []byte("another key, which has 32 bytes!"), frozenClock{fixtureNow.Time()}
	before, err := Check(t.Context(), "store", opts)
	must(t, err)
	r, err := Repair(t.Context(), "store", opts)
	must(t, err)
	if linesOf(&before) != linesOf(&r) || len(r.Faults) == 0 || r.Faults[0].Key != "the secret key" {
		t.Errorf("Check says\n%s\nand Repair\n%s", linesOf(&before), linesOf(&r))
	}
	again, err := Repair(t.Context(), "store", opts)
	if must(t, err); len(again.Faults) > 0 {
		t.Errorf("a second Repair finds %q", again.Faults)
	}
	got := lenientFacts(t, openForTest(t, "store", opts))
	for of := range want {
		if got[of] == nil && !strings.HasPrefix(of, "registry ") && !strings.HasPrefix(of, "schedule ") {
			t.Errorf("%s is gone", of)
		}
	}
	if _, err := Open(t.Context(), "store", inMemory(cloned(t, mem))); !errors.Is(err, ErrKey) {
		t.Errorf("Open with the key of before = %v, want ErrKey", err)
	}
}

func TestASecondStoreIsRefused(t *testing.T) {
	dir := t.TempDir()
	openForTest(t, dir, &Options{Ballast: -1})
	_, err := Open(t.Context(), dir, &Options{Ballast: -1})
	if !errors.Is(err, ErrLocked) {
		t.Errorf("second Open = %v, want ErrLocked", err)
	}
}

func TestAnUnknownFormatIsRefused(t *testing.T) {
	s := memStore(t)
	e, err := s.engine()
	must(t, err)
	must(t, e.commit(func(b *pebble.Batch) { putNumber(b, metaFormat, formatVersion+1) }, nil))
	must(t, s.Close())
	_, err = Open(t.Context(), s.dir, &s.opts)
	if words := fmt.Sprintf("has version %d, this program knows %d", formatVersion+1, formatVersion); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), words) {
		t.Errorf("Open of a later format = %v, want ErrFormat that says it %s", err, words)
	}
}

func TestADatabaseOfSomethingElseIsRefused(t *testing.T) {
	fs := vfs.NewMem()
	db, err := pebble.Open("store", &pebble.Options{FS: fs, Merger: counterMerger(), Logger: pebbleLogger{}})
	must(t, err)
	must(t, db.Set([]byte("x"), []byte("y"), pebble.Sync))
	must(t, db.Close())
	if _, err := Open(t.Context(), "store", inMemory(fs)); !errors.Is(err, ErrFormat) {
		t.Errorf("Open = %v, want ErrFormat", err)
	}
}

func TestSecretsAreNotOnDiskInClear(t *testing.T) {
	s := memStore(t)
	ctx := t.Context()
	must(t, s.Registries().Create(ctx, registries.Registry{ID: "r1"}, registries.Credential{Username: "secret-user", Password: "secret-word"}))
	must(t, s.Secrets().Create(ctx, secrets.Secret{ID: "w1", Value: "secret-value"}))
	j := newJob("a")
	j.Extra = []byte(`{"s3Config":{"accessSecret":"secret-s3"}}`)
	must(t, s.Jobs().Enqueue(ctx, []queue.Job{j}))
	must(t, s.Pods().Create(ctx, &pods.Pod{ID: "p", Injected: map[string]string{"JUPYTER_PASSWORD": "secret-jupyter"}}))
	_, err := s.Pods().Update(ctx, "p", func(p *pods.Pod) error { p.Name = "renamed"; return nil })
	must(t, err)
	e, err := s.engine()
	must(t, err)
	it, err := e.db.NewIter(nil)
	must(t, err)
	for it.First(); it.Valid(); it.Next() {
		if v := string(it.Value()); strings.Contains(v, "secret-") {
			t.Errorf("record %x has a secret in clear", it.Key())
		}
	}
	must(t, it.Close())
}

func TestWhatIsInjectedIntoAPodIsThereAfterAReopening(t *testing.T) {
	fs := vfs.NewMem()
	s := openForTest(t, "store", inMemory(fs))
	want := &pods.Pod{
		ID: "p", Owner: "alice", Created: time.Unix(1, 0).UTC(), Config: pods.Config{Env: map[string]string{"A": "1"}},
		Injected: map[string]string{"JUPYTER_PASSWORD": "secret", "PUBLIC_KEY": "ssh-rsa A\nssh-rsa B"},
	}
	must(t, s.Pods().Create(t.Context(), want))
	must(t, s.Close())
	s = openForTest(t, "store", inMemory(fs))
	got, err := s.Pods().Get(t.Context(), "p")
	must(t, err)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the pod (-want +got):\n%s", diff)
	}
	r, err := s.Check(t.Context())
	must(t, err)
	must(t, r.Err())
}

func TestWithoutAKeySecretsAreRefused(t *testing.T) {
	opts := inMemory(vfs.NewMem())
	opts.Key = nil
	s := openForTest(t, "store", opts)
	if err := s.Registries().Create(t.Context(), registries.Registry{ID: "r1"}, registries.Credential{}); !errors.Is(err, ErrNoKey) {
		t.Errorf("Create of a registry = %v, want ErrNoKey", err)
	}
	if err := s.Pods().Create(t.Context(), &pods.Pod{ID: "p", Injected: map[string]string{"A": "1"}}); !errors.Is(err, ErrNoKey) {
		t.Errorf("Create of a pod with a secret = %v, want ErrNoKey", err)
	}
	must(t, s.Pods().Create(t.Context(), &pods.Pod{ID: "p"}))
	j := newJob("a")
	j.Extra = []byte(`{"schedule":{"id":"s"},"s3Config":{}}`)
	if err := s.Jobs().Enqueue(t.Context(), []queue.Job{j}); !errors.Is(err, ErrNoKey) {
		t.Errorf("Enqueue with Extra = %v, want ErrNoKey", err)
	}
	j.Extra = nil
	if err := s.Jobs().Enqueue(t.Context(), []queue.Job{j}); err != nil {
		t.Errorf("Enqueue of the same id without Extra = %v: the refused one must have left nothing", err)
	}
}

func TestABackupIsAStoreOfItsOwn(t *testing.T) {
	s := memStore(t)
	ctx := t.Context()
	must(t, s.Jobs().Enqueue(ctx, []queue.Job{newJob("a"), newJob("b")}))
	token := claimOne(t, s.Jobs(), "w").Token
	must(t, s.Backup(ctx, "backups/one"))
	must(t, s.Jobs().Enqueue(ctx, []queue.Job{newJob("later")}))
	if err := s.Backup(ctx, "backups/one"); err == nil {
		t.Error("a second backup to the same directory must be refused")
	}
	must(t, Restore(ctx, "backups/one", "restored", &s.opts))
	for _, dir := range []string{"restored", "backups/one"} {
		r := openForTest(t, dir, &s.opts)
		if got := getJob(t, r.Jobs(), newJob("b").Ref); string(got.Input) != `{"n":"b"}` {
			t.Errorf("%s: input of b = %s", dir, got.Input)
		}
		if _, err := r.Jobs().Get(ctx, at, newJob("later").Ref); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("%s: Get of a job that came after the backup = %v, want ErrNotFound", dir, err)
		}
		next := claimOne(t, r.Jobs(), "w").Token
		if next>>32 < token>>32+copiedEpochs {
			t.Errorf("%s: token %x after %x: the first store goes on and may issue those between", dir, next, token)
		}
		must(t, r.Jobs().Enqueue(ctx, []queue.Job{newJob("new")}))
		if again := claimOne(t, reopen(t, r).Jobs(), "w").Token; again>>32 != next>>32+1 {
			t.Errorf("%s: token %x after %x, want one of the next epoch", dir, again, next)
		}
	}
	claimOne(t, s.Jobs(), "w") // the first one continues
}

func TestAClosedStoreSaysSo(t *testing.T) {
	s := memStore(t)
	ctx := t.Context()
	must(t, s.Jobs().Enqueue(ctx, []queue.Job{newJob("a")}))
	must(t, s.Close())
	must(t, s.Close())
	_, get := s.Jobs().Get(ctx, at, newJob("a").Ref)
	_, attempts := s.Jobs().Attempts(ctx, newJob("a").Ref)
	_, check := s.Check(ctx)
	for what, err := range map[string]error{
		"Enqueue": s.Jobs().Enqueue(ctx, []queue.Job{newJob("b")}), "Get": get, "Attempts": attempts, "Check": check,
		"Create": s.Pods().Create(ctx, &pods.Pod{ID: "p"}), "Backup": s.Backup(ctx, "b"), "Recover": s.Recover(ctx), "Run": s.Run(ctx),
	} {
		if what == "Run" && err == nil {
			continue // there is nothing to recover
		}
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s = %v, want ErrClosed", what, err)
		}
	}
}

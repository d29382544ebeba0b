package disk

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless/batches"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/schedules"
)

var makeFixture = flag.String("make-fixture", "", "the version for which TestMakeFixture writes a directory of testdata")

// TestMakeFixture writes the directory of this version, as a killed process leaves it. See
// testdata/README.md.
func TestMakeFixture(t *testing.T) {
	if *makeFixture == "" {
		t.Skip("writes testdata: set -make-fixture to a version")
	}
	dir := filepath.Join("testdata", *makeFixture)
	must(t, os.MkdirAll(dir, 0o755))
	fs := vfs.NewMem()
	m := &maker{t: t, s: openForTest(t, "store", inMemory(fs)), now: at}
	m.everything(fs)
	must(t, os.WriteFile(filepath.Join(dir, fixtureStore), packed(t, fs), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, fixtureState), []byte(stateText(t, m.s)), 0o644))
	worked := openForTest(t, "store", inMemory(unpacked(t, dir)))
	must(t, os.WriteFile(filepath.Join(dir, fixtureWork), []byte(workText(t, worked)), 0o644))
}

// packed returns the directory as base64 text.
func packed(t *testing.T, fs vfs.FS) []byte {
	names, err := fs.List("store")
	must(t, err)
	slices.Sort(names)
	var archive bytes.Buffer
	z, err := gzip.NewWriterLevel(&archive, gzip.BestCompression)
	must(t, err)
	w := tar.NewWriter(z)
	for _, name := range names {
		if name == lockName {
			continue
		}
		b := readFile(t, fs, fs.PathJoin("store", name))
		must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(b))}))
		_, err := w.Write(b)
		must(t, err)
	}
	must(t, errors.Join(w.Close(), z.Close()))
	text := base64.StdEncoding.EncodeToString(archive.Bytes())
	var lines bytes.Buffer
	for line := range slices.Chunk([]byte(text), 100) {
		fmt.Fprintf(&lines, "%s\n", line)
	}
	return lines.Bytes()
}

// A maker creates all kinds of records in a store.
type maker struct {
	t   *testing.T
	s   *Store
	now queue.Instant
}

// everything creates the content of a fixture, and leaves the store open.
func (m *maker) everything(fs vfs.FS) {
	m.small()
	m.timed()
	m.pods()
	m.keyed()
	m.ended()
	m.letters()
	m.reopen()
	m.hooks()
	m.running()
	m.queued()
	m.unfinished(fs)
}

// filled returns a T whose fields all have different values, none of them zero.
func filled[T any](name string) (v T) {
	n := 0
	setAll(reflect.ValueOf(&v).Elem(), name, &n)
	return v
}

func setAll(v reflect.Value, name string, n *int) {
	*n++
	if t, ok := reflect.TypeAssert[*time.Time](v.Addr()); ok {
		*t = at.Time().Add(time.Duration(*n) * time.Second)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			setAll(v.Field(i), strings.ToLower(v.Type().Field(i).Name), n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		setAll(v.Elem(), name, n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			setAll(v.Index(i), name, n)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		setAll(key, name, n)
		setAll(value, name, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(fmt.Sprintf("%s %d", name, *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(*n) + 0.25)
	default:
		setNumber(v, *n)
	}
}

func setNumber(v reflect.Value, n int) {
	if v.CanInt() {
		v.SetInt(int64(n))
		return
	}
	v.SetUint(uint64(n)) // panics for a kind that is not handled here
}

// small creates the records of stores other than pods and jobs.
func (m *maker) small() {
	ctx := m.t.Context()
	for i := range 2 {
		id := fmt.Sprint("id", i)
		must(m.t, m.s.Registries().Create(ctx, registries.Registry{ID: id, Owner: "alice", Name: "hub", Created: at.Time()},
			registries.Credential{Username: "a user", Password: registries.Secret("a password " + id)}))
		v := filled[volumes.Volume]("volume")
		v.ID, v.Owner, v.Type = id, "alice", catalog.HighPerformance
		must(m.t, m.s.Volumes().Create(ctx, v))
		tp := filled[templates.Template]("template")
		tp.ID, tp.Owner, tp.Public, tp.Category = id, "alice", i == 1, templates.NVIDIA
		must(m.t, m.s.Templates().Create(ctx, tp))
		ep := filled[endpoints.Endpoint]("endpoint")
		ep.ID, ep.Owner, ep.Scaling.Type, ep.FlashBoot = fixtureEndpoints()[i], "alice", endpoints.RequestCount, endpoints.FlashBootOn
		must(m.t, m.s.Endpoints().Create(ctx, &ep))
	}
	must(m.t, m.s.SSHKeys().SetSSHKeys(ctx, "alice", []string{"ssh-ed25519 AAAA alice", "ssh-rsa BBBB alice"}))
	must(m.t, m.s.Accounts().Create(ctx, accounts.Key{
		ID: "key", User: "alice", Scopes: []string{"*", "endpoint:e:run"}, Created: at.Time(), Expires: at.Time().AddDate(100, 0, 0),
		Digest: accounts.DigestOf("secret"), Old: accounts.DigestOf("old"), OldUntil: at.Time(),
	}))
	for i, kind := range []pods.UsageKind{pods.PodUsage, pods.VolumeUsage, pods.WorkerUsage, pods.PodUsage} {
		u := filled[pods.Usage]("use")
		u.Owner, u.Kind, u.ID, u.Open = "alice", kind, fmt.Sprint("used", i), i == 3
		must(m.t, m.s.Billing().Record(ctx, []pods.Usage{u}))
	}
}

// timed creates schedules and batches.
func (m *maker) timed() {
	ctx := m.t.Context()
	for i := range 2 {
		s := filled[schedules.Schedule]("schedule")
		s.ID, s.Owner, s.Endpoint = fmt.Sprint("schedule", i), "alice", "echo"
		must(m.t, m.s.Schedules().Create(ctx, s))
		b := filled[batches.Batch]("batch")
		b.ID, b.Owner, b.Endpoint = fmt.Sprint("batch", i), "alice", "echo"
		must(m.t, m.s.Batches().Create(ctx, b))
	}
}

// keyed creates records of requests with an Idempotency-Key.
func (m *maker) keyed() {
	v := filled[volumes.Volume]("volume")
	v.ID, v.Owner, v.Type = "keyed", "bob", catalog.Standard
	must(m.t, m.s.Volumes().CreateKeyed(m.t.Context(), v, fixtureKey("volume", v.ID)))
	r := fixtureKey("job", "keyed")
	m.finish(m.run(r.ID, func(j *queue.Job) { j.Creation = &r }), queue.Completed, "1", "")
}

// pods creates a pod in every status. The running pod has a value in every field. It also
// creates reservations.
func (m *maker) pods() {
	ctx := m.t.Context()
	for i, status := range []pods.Status{pods.Provisioning, pods.Starting, pods.Running, pods.Exited, pods.Errored, pods.Terminated} {
		p := pods.Pod{CPU: &pods.CPU{ID: "host", VCPU: 2, Memory: 4}}
		if status == pods.Running {
			p = runningPod()
		}
		p.ID, p.Owner, p.Created = strings.ToLower(string(status)), "alice", at.Time().Add(time.Duration(i)*time.Minute)
		p.Seen.Status = status
		must(m.t, m.s.Pods().Create(ctx, &p))
	}
	for i := range 2 {
		h := filled[pods.Reservation]("hold")
		h.GPU, h.Holder, h.Placement.Claims = nil, fmt.Sprint("worker-echo-", i), []pods.Claim{{Resource: "memory/host1", Units: 4, Limit: 64}}
		must(m.t, m.s.Pods().Reserve(ctx, h))
	}
}

func runningPod() pods.Pod {
	p := filled[pods.Pod]("pod")
	p.CPU, p.Cloud, p.Want.Power, p.Seen.Phase = nil, pods.Secure, pods.PowerOn, pods.PhaseHealthy
	p.Placement.Claims = []pods.Claim{{Resource: "gpu/host1/GPU-0", Units: 1, Limit: 1}, {Resource: "memory/host1", Units: 8, Limit: 64}}
	for i := range p.Used {
		p.Used[i].Kind = pods.PodUsage
	}
	return p
}

// submit submits a job of alice for echo; change may modify it.
func (m *maker) submit(id string, change func(*queue.Job)) queue.Ref {
	m.now += 1000
	j := newJob(id)
	j.Submitted, j.Queued, j.Retain, j.ExecTimeout = m.now, m.now, 80_000*time.Second, 50_000*time.Second
	if change != nil {
		change(&j)
	}
	must(m.t, m.s.Jobs().Enqueue(m.t.Context(), []queue.Job{j}))
	return j.Ref
}

// run submits a job and claims it. No other job may be ready.
func (m *maker) run(id string, change func(*queue.Job)) queue.Op {
	ref := m.submit(id, change)
	return m.claim(ref, "w1")
}

func (m *maker) claim(ref queue.Ref, worker queue.WorkerID) queue.Op {
	m.now += 10
	jobs, err := m.s.Jobs().Claim(m.t.Context(), m.now, []queue.Slot{{Endpoint: ref.Endpoint, Worker: worker, N: 1, Until: m.now + 10_000}}, nil)
	must(m.t, err)
	if len(jobs) != 1 || jobs[0].Ref != ref {
		m.t.Fatalf("claimed %v, want %v", jobs, ref)
	}
	return queue.Op{Ref: ref, Worker: worker, Token: jobs[0].Token}
}

func (m *maker) apply(op queue.Op, kind queue.OpKind, change func(*queue.Op)) {
	m.now += 10
	op.Kind = kind
	if change != nil {
		change(&op)
	}
	res := make([]queue.Result, 1)
	must(m.t, m.s.Jobs().Apply(m.t.Context(), m.now, []queue.Op{op}, res))
	must(m.t, res[0].Err)
}

func (m *maker) finish(op queue.Op, status queue.Status, output, text string) {
	m.apply(op, queue.OpFinish, func(op *queue.Op) {
		op.Status, op.Error = status, text
		if output != "" {
			op.Payload = []byte(output)
		}
	})
}

func (m *maker) expire(d queue.Instant) {
	m.now += d
	_, err := m.s.Jobs().Expire(m.t.Context(), m.now, 1000)
	must(m.t, err)
}

func hooked(j *queue.Job) {
	j.Webhook, j.Flags, j.Extra = "https://example.org/"+string(j.ID), queue.HasWebhook, []byte(`{"s3Config":{"accessSecret":"hush"}}`)
}

// big returns a payload that is stored in its own table.
func big(text string) string { return `"` + strings.Repeat(text, 2*bigPayload/len(text)) + `"` }

// ended creates a job in every final status and for every reason, and some jobs that are then
// deleted.
func (m *maker) ended() {
	m.gone()
	m.finish(m.run("completed", nil), queue.Completed, `"out"`, "")
	m.finish(m.run("completed-big", nil), queue.Completed, big("output "), "")
	m.finish(m.run("completed-empty", nil), queue.Completed, "", "")
	m.finish(m.run("failed", nil), queue.Failed, `{"partial":true}`, "it failed: ünïcode")
	m.apply(queue.Op{Ref: m.submit("cancelled", nil)}, queue.OpCancel, nil)
	m.apply(m.run("cancelled-running", nil), queue.OpCancel, nil)
	m.apply(queue.Op{Ref: m.submit("purged", nil)}, queue.OpPurge, nil)
	m.apply(queue.Op{Ref: m.submit("damaged", nil)}, queue.OpDamage, nil)
	m.run("timed-out", func(j *queue.Job) { j.ExecTimeout = 500 * time.Millisecond })
	m.expire(1000)
	lost := m.submit("workers-lost", nil)
	for i := range queue.MaxDeliveries {
		m.claim(lost, queue.WorkerID(fmt.Sprint("lost", i)))
		m.expire(20_000)
	}
	crash := m.submit("crashed", nil)
	for range queue.MaxRestarts {
		m.apply(m.claim(crash, "w1"), queue.OpRecover, nil)
	}
	m.streamed()
}

// letters creates dead letters, one of them of a job that is gone, and a job between two attempts.
func (m *maker) letters() {
	dead := func(j *queue.Job) { j.DeadLetter = 30 * 24 * time.Hour }
	m.finish(m.run("dead", dead), queue.Failed, `{"dead":true}`, "it failed for good")
	m.finish(m.run("dead-gone", func(j *queue.Job) {
		dead(j)
		j.Retain = 100 * time.Millisecond
	}), queue.Failed, big("dead "), "no")
	m.expire(1000)
	m.finish(m.run("retried", func(j *queue.Job) {
		j.Retry, j.Expires = queue.RetryPolicy{Attempts: 3, Factor: 2, Jitter: 0.5, Delay: 10 * time.Hour, MaxDelay: 20 * time.Hour}, j.Expires+7*24*3_600_000
	}), queue.Failed, "", "the first attempt")
}

// gone makes jobs of which only the counts are left.
func (m *maker) gone() {
	short := func(j *queue.Job) { j.Endpoint, j.Retain = "gone", 100*time.Millisecond }
	ref := m.submit("gone-1", short)
	m.claim(ref, "lost")
	m.expire(20_000)
	m.finish(m.claim(ref, "w1"), queue.Completed, "1", "")
	m.finish(m.run("gone-2", short), queue.Failed, "", "no")
	m.expire(1000)
}

func (m *maker) streamed() {
	op := m.run("streamed", nil)
	m.chunks(op, 5, 2)
	m.finish(op, queue.Completed, `[0,1,2,3,4]`, "")
}

// chunks sends n chunks, of which some are drained.
func (m *maker) chunks(op queue.Op, n, drained int) {
	size := int64(0)
	for i := range n {
		chunk := fmt.Appendf(nil, `{"output":%d}`, i)
		size = int64(len(chunk))
		m.apply(op, queue.OpChunk, func(op *queue.Op) { op.Payload = chunk })
	}
	m.apply(op, queue.OpDrain, func(op *queue.Op) { op.N, op.Bytes = uint32(drained), size*int64(drained) })
}

// reopen moves all records into tables of the last level, and starts another epoch.
func (m *maker) reopen() {
	e, err := m.s.engine()
	must(m.t, err)
	must(m.t, e.db.Compact(m.t.Context(), []byte{0}, []byte{0xff}, false))
	m.s = reopen(m.t, m.s)
}

// attempt makes one attempt to send every webhook that is due.
func (m *maker) attempt(change func(*queue.Attempt)) {
	m.now += 10
	ds, err := m.s.Jobs().Deliveries(m.t.Context(), m.now, m.now+1000, 100)
	must(m.t, err)
	if len(ds) != 1 {
		m.t.Fatalf("%d webhooks are due, want 1", len(ds))
	}
	a := queue.Attempt{Ref: ds[0].Job.Ref, DeliveryID: ds[0].ID, Token: ds[0].Token, At: m.now}
	change(&a)
	must(m.t, m.s.Jobs().Record(m.t.Context(), []queue.Attempt{a}))
}

// hooks creates webhooks that are settled, tried, postponed and new. Their jobs exist, were
// retried, or were deleted.
func (m *maker) hooks() {
	again := func(a *queue.Attempt) { a.Status, a.Err, a.Next = 503, "", m.now+1 }
	later := func(a *queue.Attempt) { a.Err, a.Next = "no answer", m.now+1_000_000 }
	m.finish(m.run("hook-settled", hooked), queue.Completed, `"a"`, "")
	m.attempt(again)
	m.attempt(again)
	m.attempt(func(a *queue.Attempt) { a.Status = 200 })
	m.finish(m.run("hook-tried", hooked), queue.Failed, "", "it failed")
	m.attempt(again)
	m.attempt(later)
	m.finish(m.run("hook-postponed", hooked), queue.Completed, `"b"`, "")
	m.attempt(func(a *queue.Attempt) { a.Postponed, a.Next = true, m.now+1_000_000 })
	m.finish(m.run("hook-new", hooked), queue.Completed, big("webhook "), "")
	m.finish(m.run("hook-gone", func(j *queue.Job) { hooked(j); j.Retain = 10 * time.Millisecond }), queue.Completed, `"c"`, "")
	m.expire(1000)
	m.finish(m.run("hook-retried", hooked), queue.Failed, `"of run 0"`, "once")
	m.finish(m.run("run-256", func(j *queue.Job) { hooked(j); j.Run = 255 }), queue.Failed, `"of run 255"`, "late")
	m.finish(m.run("again", nil), queue.Failed, `"void"`, "void")
}

// running creates jobs in progress.
func (m *maker) running() {
	op := m.run("running", hooked)
	m.apply(op, queue.OpProgress, func(op *queue.Op) { op.Payload = []byte(`{"done":0.5}`) })
	m.chunks(op, 3, 1)
	m.apply(op, queue.OpRenew, func(op *queue.Op) { op.Until = m.now + 40_000_000 })
	op = m.run("running-low", func(j *queue.Job) { j.Flags, j.Owner = queue.LowPriority|queue.Sync, "bob" })
	m.apply(op, queue.OpRenew, func(op *queue.Op) { op.Until = m.now + 40_000_000 })
}

// queued creates jobs that are queued for different reasons.
func (m *maker) queued() {
	op := m.run("lost", nil)
	m.apply(op, queue.OpWorkerLost, nil)
	op = m.run("released", nil)
	m.apply(op, queue.OpRelease, nil)
	for _, id := range []queue.JobID{"hook-retried", "run-256", "again"} {
		m.apply(queue.Op{Ref: queue.Ref{Endpoint: "echo", ID: id}}, queue.OpRetry, nil)
	}
	m.submit("queued", nil)
	m.submit("queued-hooked", hooked)
	m.submit("queued-big", func(j *queue.Job) { j.Input = []byte(big("input ")) })
	m.submit("queued-low", func(j *queue.Job) { j.Flags, j.Owner = queue.LowPriority, "bob" })
	m.submit(strings.Repeat("long/", 12)+"id!", func(j *queue.Job) { j.Endpoint = "other" })
	m.submit("queued-first", func(j *queue.Job) {
		j.Priority, j.Key = queue.MaxPriority, "a key"
		j.Trace = queue.Trace{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", State: "a=b"}
	})
	m.submit("queued-delayed", func(j *queue.Job) { j.Delayed, j.Queued = true, m.now.Add(10*time.Hour) })
	m.apply(queue.Op{Ref: m.submit("queued-ttl", nil)}, queue.OpSetTTL, func(op *queue.Op) { op.Until = at + 90_000_000 })
}

// unfinished leaves large payloads whose jobs were never stored, as a kill does.
func (m *maker) unfinished(fs vfs.FS) {
	e, err := m.s.engine()
	must(m.t, err)
	must(m.t, e.storeBig(m.t.Context(), bodyKey(1<<40, bodyInput), []byte(big("of no job "))))
	must(m.t, e.commit(func(b *pebble.Batch) { e.jobs.numbers(b) }, nil))
	writeFile(m.t, fs, fs.PathJoin("store", stagePrefix+"6200"), []byte("half a table"))
}

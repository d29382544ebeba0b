package disk

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/queue"
)

// The files of a fixture: a directory of an earlier version, its content as that version reads
// it, and the results of that version's work with it.
const (
	fixtureStore = "store.tar.gz.base64"
	fixtureState = "state.txt"
	fixtureWork  = "work.txt"
)

// fixtures returns the versions whose directories this program reads.
func fixtures(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join("testdata", "v*"))
	must(t, err)
	if len(dirs) == 0 {
		t.Fatal("there is no fixture in testdata")
	}
	return dirs
}

func wantText(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	must(t, err)
	return string(b)
}

// unpacked returns a file system in memory with the directory of a fixture as "store".
func unpacked(t *testing.T, dir string) *vfs.MemFS {
	t.Helper()
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(wantText(t, dir, fixtureStore))))
	must(t, err)
	fs := vfs.NewMem()
	must(t, fs.MkdirAll("store", 0o700))
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return fs
		}
		must(t, err)
		b, err := io.ReadAll(r)
		must(t, err)
		writeFile(t, fs, fs.PathJoin("store", h.Name), b)
	}
}

// A directory of an earlier version has all its content, also after this version has opened
// and closed it.
func TestADirectoryOfAnEarlierVersionIsRead(t *testing.T) {
	for _, dir := range fixtures(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			s := openForTest(t, "store", inMemory(unpacked(t, dir)))
			for range 2 {
				if diff := diffLines(wantText(t, dir, fixtureState), stateText(t, s)); diff != "" {
					t.Fatalf("what is in the store (-want +got):\n%s", diff)
				}
				r, err := s.Check(t.Context())
				must(t, errors.Join(err, r.Err()))
				s = reopen(t, s)
			}
		})
	}
}

// The jobs of a directory of an earlier version continue, its webhooks are sent, and its
// claims apply.
func TestADirectoryOfAnEarlierVersionGoesOn(t *testing.T) {
	for _, dir := range fixtures(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			s := openForTest(t, "store", inMemory(unpacked(t, dir)))
			if diff := diffLines(wantText(t, dir, fixtureWork), workText(t, s)); diff != "" {
				t.Errorf("what the store does (-want +got):\n%s", diff)
			}
		})
	}
}

func diffLines(want, got string) string {
	return cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n"))
}

// fixtureNow is the time at which fixtures are read.
const fixtureNow = at + 1_800_000

// A state lists the content of a store, with one line for each value that is not zero. So a
// field that a later version adds changes nothing.
type state struct {
	t       *testing.T
	s       *Store
	b       strings.Builder
	lenient bool // leave out damaged data, and say so
}

// ok reports whether err is nil. It ends the test on an error, unless the state is lenient and
// the error is ErrDamaged.
func (w *state) ok(err error) bool {
	w.t.Helper()
	if err == nil {
		return true
	}
	if !w.lenient || !errors.Is(err, ErrDamaged) {
		w.t.Fatal(err)
	}
	return false
}

// list is ok for the error at the end of a list, which may then be incomplete.
func (w *state) list(what string, err error) bool {
	if !w.ok(err) {
		w.line("%s are not all: more", what)
	}
	return err == nil
}

func stateText(t *testing.T, s *Store) string {
	w := &state{t: t, s: s}
	w.all()
	return w.b.String()
}

func (w *state) all() {
	w.pods()
	w.endpoints()
	w.registries()
	w.owned()
	w.timed()
	w.keyed()
	w.jobs()
	w.letters()
	w.webhooks()
}

// letters lists the dead letters.
func (w *state) letters() {
	ctx := w.t.Context()
	for _, ep := range fixtureEndpoints() {
		for d, err := range w.s.Jobs().DeadLetters(ctx, fixtureNow, ep, "") {
			if !w.list("dead letters", err) {
				break
			}
			w.line("dead %s/%s of %s", ep, d.ID, d.Owner)
			d, err := w.s.Jobs().DeadLetter(ctx, fixtureNow, d.Ref)
			if !w.ok(err) {
				w.line("  damaged: output")
			}
			w.life(&d.State)
			w.payload("input", d.Input)
			w.payload("output", d.Output)
			w.text("error", d.Error)
			w.line("  until: %d", d.Until)
		}
	}
}

func (w *state) line(format string, args ...any) { fmt.Fprintf(&w.b, format+"\n", args...) }

// value lists a record with the JSON names of its fields.
func (w *state) value(v any) {
	b, err := json.Marshal(v)
	must(w.t, err)
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var tree any
	must(w.t, d.Decode(&tree))
	w.tree("", tree)
}

func (w *state) tree(name string, v any) {
	switch v := v.(type) {
	case nil:
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			w.tree(strings.TrimPrefix(name+"."+k, "."), v[k])
		}
	case []any:
		for i := range v {
			w.tree(fmt.Sprintf("%s[%d]", name, i), v[i])
		}
	case string:
		if v != "" && v != "0001-01-01T00:00:00Z" {
			w.line("  %s: %q", name, v)
		}
	case json.Number:
		if v != "0" {
			w.line("  %s: %s", name, v)
		}
	case bool:
		if v {
			w.line("  %s", name)
		}
	}
}

func (w *state) pods() {
	resources := map[string]bool{}
	for p, err := range w.s.Pods().List(w.t.Context(), pods.Filter{}) {
		if !w.list("pods", err) {
			break
		}
		w.line("pod %s", p.ID)
		w.value(p)
		for _, c := range p.Placement.Claims {
			resources[c.Resource] = true
		}
	}
	for h, err := range w.s.Pods().Reservations(w.t.Context()) {
		if !w.list("holds", err) {
			break
		}
		w.line("hold %s", h.Holder)
		w.value(h)
		for _, c := range h.Placement.Claims {
			resources[c.Resource] = true
		}
	}
	for _, r := range slices.Sorted(maps.Keys(resources)) {
		if n, err := w.s.Pods().Claimed(w.t.Context(), r); w.ok(err) {
			w.line("used of %s: %d", r, n)
		}
	}
}

func (w *state) endpoints() {
	for e, err := range w.s.Endpoints().List(w.t.Context()) {
		if !w.list("endpoints", err) {
			break
		}
		w.line("endpoint %s", e.ID)
		w.value(e)
	}
}

func (w *state) registries() {
	list, err := w.s.Registries().List(w.t.Context(), "alice")
	w.list("registries", err)
	for _, r := range list {
		_, c, err := w.s.Registries().Get(w.t.Context(), r.ID)
		w.line("registry %s", r.ID)
		if !w.ok(err) {
			w.line("  damaged")
		}
		w.value(r)
		w.line("  username: %q", string(c.Username))
		w.line("  password: %q", string(c.Password))
	}
}

// owned lists the records of the small stores.
func (w *state) owned() {
	ctx := w.t.Context()
	volumes, err := w.s.Volumes().List(ctx, "alice")
	w.list("volumes", err)
	for _, v := range volumes {
		w.line("volume %s", v.ID)
		w.value(v)
	}
	templates, err := w.s.Templates().List(ctx, "alice")
	w.list("templates", err)
	public, err := w.s.Templates().Public(ctx)
	w.ok(err)
	for _, v := range slices.Concat(templates, public) {
		w.line("template %s", v.ID)
		w.value(v)
	}
	if keys, err := w.s.SSHKeys().SSHKeys(ctx, "alice"); w.list("ssh keys", err) && len(keys) > 0 {
		w.line("ssh keys of alice: %q", keys)
	}
	apiKeys, err := w.s.Accounts().All(ctx)
	w.list("API keys", err)
	for _, k := range apiKeys {
		w.line("API key %s", k.ID)
		w.value(k)
	}
	uses, err := w.s.Billing().Usage(ctx, "alice", at.Time().AddDate(-1, 0, 0), at.Time().AddDate(1, 0, 0))
	w.list("uses", err)
	open, err := w.s.Billing().Open(ctx, pods.PodUsage)
	w.ok(err)
	slices.SortFunc(uses, func(a, b pods.Usage) int { return strings.Compare(a.ID, b.ID) }) // they have the same start
	for _, u := range slices.Concat(uses, open) {
		w.line("use of %s", u.ID)
		w.value(u)
	}
}

// timed lists schedules and batches.
func (w *state) timed() {
	schedules, err := w.s.Schedules().All(w.t.Context())
	w.list("schedules", err)
	for _, v := range schedules {
		w.line("schedule %s", v.ID)
		w.value(v)
	}
	batches, err := w.s.Batches().All(w.t.Context())
	w.list("batches", err)
	for _, v := range batches {
		w.line("batch %s", v.ID)
		w.value(v)
	}
}

// fixtureKey returns the record of a request of the fixture.
func fixtureKey(key, id string) idempotency.Record {
	return idempotency.Record{Request: *idempotency.NewRequest(key, []string{"alice"}, []byte("body")), ID: id, At: at.Time()}
}

// keyed lists the records of requests with an Idempotency-Key.
func (w *state) keyed() {
	for _, name := range []string{"volume", "job"} {
		r, err := w.s.Jobs().FindKey(w.t.Context(), fixtureKey(name, "").Key)
		if errors.Is(err, idempotency.ErrNotFound) {
			continue
		}
		if w.list("Idempotency-Keys", err) {
			w.line("Idempotency-Key %s", name)
			w.line("  created: %s at %v by %x", r.ID, r.At, r.Content)
		}
	}
}

// fixtureEndpoints returns the endpoints that have or had jobs.
func fixtureEndpoints() []string { return []string{"echo", "other", "gone"} }

func (w *state) jobs() {
	ctx := w.t.Context()
	for _, ep := range fixtureEndpoints() {
		w.stats(ep)
		for j, err := range w.s.Jobs().List(ctx, fixtureNow, queue.ListQuery{Endpoint: ep}) {
			if !w.list("jobs", err) {
				break
			}
			w.job(j.Ref)
		}
	}
}

func (w *state) stats(endpoint string) {
	s, err := w.s.Jobs().Stats(w.t.Context(), fixtureNow, endpoint, nil)
	if !w.ok(err) {
		return
	}
	w.line("jobs of %s: %d queued (%d of low priority, the oldest since %d), %d running, %d completed, %d failed, %d retried",
		endpoint, s.Queued, s.QueuedLow, s.Oldest, s.Running, s.Completed, s.Failed, s.Retried)
}

func (w *state) job(ref queue.Ref) {
	ctx := w.t.Context()
	j, err := w.s.Jobs().Get(ctx, fixtureNow, ref)
	w.line("job %s/%s of %s", ref.Endpoint, ref.ID, j.Owner)
	if !w.ok(err) {
		w.line("  damaged: output")
	}
	chunks, _, err := w.s.Jobs().Chunks(ctx, fixtureNow, ref, 1<<20)
	if !w.ok(err) {
		w.line("  damaged: chunk")
	}
	attempts, err := w.s.Jobs().Attempts(ctx, ref)
	if !w.ok(err) {
		w.line("  damaged: attempt")
	}
	past, err := w.s.Jobs().PastAttempts(ctx, fixtureNow, ref)
	if !w.ok(err) {
		w.line("  damaged: past")
	}
	for _, a := range past {
		w.line("  past: %+v", a)
	}
	leases, err := w.s.Jobs().PastLeases(ctx, fixtureNow, ref)
	if !w.ok(err) {
		w.line("  damaged: lease")
	}
	for _, l := range leases {
		w.line("  lease: %+v", l)
	}
	w.life(&j.State)
	w.payload("input", j.Input)
	w.payload("output", j.Output)
	w.text("error", j.Error)
	w.text("webhook", j.Webhook)
	w.payload("extra", j.Extra)
	w.text("key", j.Key)
	w.text("trace", j.Trace.Parent)
	w.text("trace state", j.Trace.State)
	for i, c := range chunks {
		w.payload(fmt.Sprintf("chunk %d", int(j.Drained)+i), c)
	}
	for _, a := range attempts {
		w.line("  attempt %s at %d: status %d, error %q, next %d", a.DeliveryID, a.At, a.Status, a.Err, a.Next)
	}
}

// life lists the state of a job. The names are those of the fixture, whatever the fields are
// called now.
func (w *state) life(s *queue.State) {
	w.line("  status: %v", s.Status)
	w.text("worker", string(s.Worker))
	w.text("lost by", string(s.Lost))
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"flags", int64(s.Flags)}, {"reason", int64(s.Reason)}, {"deliveries", int64(s.Deliveries)}, {"restarts", int64(s.Restarts)},
		{"run", int64(s.Run)}, {"seq", int64(s.Seq)}, {"token", int64(s.Token)}, {"submitted", int64(s.Submitted)},
		{"queued", int64(s.Queued)}, {"started", int64(s.Started)}, {"finished", int64(s.Finished)}, {"lease until", int64(s.LeaseUntil)},
		{"run until", int64(s.RunUntil)}, {"expires", int64(s.Expires)}, {"execution timeout", s.ExecTimeout.Milliseconds()}, {"retain", s.Retain.Milliseconds()},
		{"chunks", int64(s.Chunks)}, {"drained", int64(s.Drained)}, {"stream", s.Stream},
		{"priority above the default", int64(s.Priority) - queue.DefaultPriority}, {"attempt", int64(s.Attempt)}, {"delayed", bit(s.Delayed)}, {"attempts", int64(s.Retry.Attempts)},
		{"retry delay", s.Retry.Delay.Milliseconds()}, {"dead letter", s.DeadLetter.Milliseconds()},
		{"leases", int64(s.Leases)}, {"first chunk", int64(s.FirstChunk)},
	} {
		if f.value != 0 {
			w.line("  %s: %d", f.name, f.value)
		}
	}
}

func bit(set bool) int64 {
	if set {
		return 1
	}
	return 0
}

func (w *state) text(name, text string) {
	if text != "" {
		w.line("  %s: %q", name, text)
	}
}

// payload lists only both ends of a long payload.
func (w *state) payload(name string, b []byte) {
	switch {
	case b == nil:
	case len(b) > 200:
		w.line("  %s: %q ... %q, %d bytes, CRC %08x", name, b[:20], b[len(b)-20:], len(b), checksum(nil, b))
	default:
		w.line("  %s: %q", name, b)
	}
}

// webhooks leases all webhooks, and lists them with their due times.
func (w *state) webhooks() {
	ctx := w.t.Context()
	next, err := w.s.Jobs().NextDelivery(ctx)
	w.ok(err)
	w.line("the next webhook is due at %d", next)
	ds, err := w.s.Jobs().Deliveries(ctx, fixtureNow, fixtureNow+1, 100)
	w.ok(err)
	for i := range ds {
		w.ok(w.s.Jobs().LoadDelivery(ctx, &ds[i]))
	}
	slices.SortFunc(ds, func(a, b queue.Delivery) int { return strings.Compare(a.ID, b.ID) })
	for _, d := range ds {
		w.delivery(&d)
	}
}

func (w *state) delivery(d *queue.Delivery) {
	w.line("webhook %s of %s/%s of %s after %d tries", d.ID, d.Job.Endpoint, d.Job.ID, d.Job.Owner, d.Tries)
	w.life(&d.Job.State)
	w.payload("input", d.Job.Input)
	w.payload("output", d.Job.Output)
	w.text("error", d.Job.Error)
	w.text("to", d.Job.Webhook)
	w.text("fault", d.Fault)
}

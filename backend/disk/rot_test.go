package disk

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/suite"
)

// Facts are the content of a store: the lines of each record.
type facts map[string][]string

// factsOf splits a state into records. The text after a colon is a fact of the record named
// before it. A template that is listed twice is one record.
func factsOf(text string) facts {
	f, of := facts{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "  ") {
			f[of] = append(f[of], line)
			continue
		}
		words := strings.SplitN(line, " ", 3)
		switch {
		case words[0] == "webhook":
			of, line = words[0]+" "+words[1], "  "+words[2]
		case strings.Contains(line, ": "):
			of, line, _ = strings.Cut(line, ": ")
		case strings.HasPrefix(line, "the next webhook"):
			continue // each webhook also has its due time
		default:
			of, line = line, ""
		}
		f[of] = append(f[of][:0:0], line)
	}
	return f
}

func lenientFacts(t *testing.T, s *Store) facts {
	w := &state{t: t, s: s, lenient: true}
	w.all()
	return factsOf(w.b.String())
}

// A verdict lists wrong answers of a damaged store.
type verdict []string

func (v *verdict) wrong(format string, args ...any) { *v = append(*v, fmt.Sprintf(format, args...)) }

// judge compares the answers of a damaged store with its true content. Everything that the
// store returns must be right, and it must report that the rest is missing.
func judge(want, got facts) (v verdict) {
	for of, lines := range got {
		if strings.HasSuffix(of, " are not all") {
			continue
		}
		v.record(of, want[of], lines, got)
	}
	for of := range want {
		if _, ok := got[of]; !ok && !got.incomplete(of) {
			v.wrong("%s is gone", of)
		}
	}
	return v
}

// incomplete reports whether the store says that a list of such records is incomplete.
func (f facts) incomplete(of string) bool {
	list := map[string]string{
		"pod": "pods", "hold": "holds", "used": "pods holds", "endpoint": "endpoints", "registry": "registries", "volume": "volumes",
		"template": "templates", "ssh": "ssh keys", "API": "API keys", "use": "uses", "job": "jobs", "jobs": "jobs", "webhook": "jobs webhooks", "dead": "dead letters",
		"Idempotency-Key": "Idempotency-Keys", "schedule": "schedules", "batch": "batches",
	}[strings.Fields(of)[0]]
	for l := range strings.FieldsSeq(list) {
		if f[l+" are not all"] != nil {
			return true
		}
	}
	return f[list+" are not all"] != nil
}

func (v *verdict) record(of string, want, got []string, all facts) {
	if want == nil {
		// A job that ends as damaged sends its webhook.
		if id, ok := strings.CutPrefix(of, "webhook msg_"); ok && all.ended(id[:strings.LastIndexByte(id, '_')]) {
			return
		}
		v.wrong("%s was never there: %q", of, got)
		return
	}
	if damagedJob(got) && slices.Contains(want, "  status: IN_QUEUE") {
		return
	}
	for _, line := range got {
		if !slices.Contains(want, line) && !strings.HasPrefix(line, "  damaged") && !strings.HasPrefix(line, "  fault") && !strings.HasPrefix(of, "jobs of") {
			v.wrong("%s: %q is not so", of, line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) && !mayBeLeftOut(of, line, got) {
			v.wrong("%s: %q is left out", of, line)
		}
	}
}

// damagedJob reports whether a job has ended because it was damaged.
func damagedJob(lines []string) bool {
	return slices.Contains(lines, "  status: FAILED") && slices.Contains(lines, "  reason: 4")
}

func (f facts) ended(id string) bool {
	for of, lines := range f {
		if strings.HasPrefix(of, "job ") && strings.Contains(of, "/"+id+" ") && damagedJob(lines) {
			return true
		}
	}
	return false
}

// mayBeLeftOut reports whether a line of a record may be missing: because it is data of the
// submission, or because the record is reported as damaged.
func mayBeLeftOut(of, line string, got []string) bool {
	what := strings.Fields(line)[0]
	switch {
	case strings.HasPrefix(of, "jobs of"):
		return true // checked below for stores without a loss
	case strings.HasPrefix(of, "dead ") && strings.HasPrefix(what, "input"):
		return true
	case strings.HasPrefix(of, "job ") && (strings.HasPrefix(what, "input") || strings.HasPrefix(what, "webhook") || strings.HasPrefix(what, "extra")):
		return true
	case strings.HasPrefix(of, "webhook "):
		return slices.ContainsFunc(got, func(l string) bool { return strings.HasPrefix(l, "  fault") })
	}
	if what = strings.TrimSuffix(what, ":"); what == "error" {
		what = "output"
	}
	return slices.ContainsFunc(got, func(l string) bool { return strings.HasPrefix(l, "  damaged: "+what) || l == "  damaged" })
}

// Tables are damaged at random. The store still opens, and nothing that it
// returns is wrong. Check reports what is lost. Repair drops exactly that, and reports the
// same.
func TestADamagedTableIsIsolated(t *testing.T) {
	suite.SkipUnlessLong(t)
	mem, text := furnished(t, true)
	rots(t, mem, factsOf(text), 20, func(rng *rand.Rand, fs *vfs.MemFS, n int) string {
		return flip(t, rng, fs, pick(rng, tablesIn(t, fs, "store")), 1+n%3)
	})
}

// rots makes a number of trials. In each, rot damages a copy of the directory and returns what
// it did.
func rots(t *testing.T, mem *vfs.MemFS, want facts, trials int, rot func(rng *rand.Rand, fs *vfs.MemFS, n int) string) {
	t.Helper()
	if longTime() > 0 {
		trials = 2000
	}
	rng := rand.New(rand.NewPCG(1, uint64(trials)))
	var sum rotting
	for n := range trials {
		fs := cloned(t, mem)
		did := rot(rng, fs, n)
		if v := sum.trial(t, fs, want); len(v) > 0 {
			t.Fatalf("trial %d, %s:\n%s", n, did, strings.Join(v, "\n"))
		}
	}
	t.Logf("%d trials: nothing was lost in %d of them, %d of %d records in the others", trials, sum.whole, sum.lost, (trials-sum.whole)*len(want))
}

// rotting counts the results of trials.
type rotting struct{ whole, lost, refused int }

// trial opens a damaged directory and repairs it.
func (r *rotting) trial(t *testing.T, fs *vfs.MemFS, want facts) (v verdict) {
	// Check must not change the directory.
	before, err := Check(t.Context(), "store", inMemory(fs))
	if err != nil {
		v.wrong("Check = %v", err)
	}
	s, err := Open(t.Context(), "store", inMemory(cloned(t, fs)))
	switch {
	case err == nil:
		v = append(v, judge(want, settledFacts(t, s))...)
		must(t, s.Close())
	case errors.Is(err, ErrDamaged) && before.partsOfLogs():
		r.refused++
	default:
		v.wrong("Open = %v", err)
	}

	report, err := Repair(t.Context(), "store", inMemory(fs))
	if err != nil {
		v.wrong("Repair = %v", err)
		return v
	}
	if diff := cmp.Diff(before, report); diff != "" {
		v.wrong("Check and Repair do not say the same (-Check +Repair):\n%s", diff)
	}
	return append(v, r.repaired(t, fs, want, &report)...)
}

// repaired compares a repaired directory with its earlier content and the report of Repair.
func (r *rotting) repaired(t *testing.T, fs *vfs.MemFS, want facts, report *Report) (v verdict) {
	s, err := Open(t.Context(), "store", inMemory(fs))
	if err != nil {
		v.wrong("Open after Repair = %v", err)
		return v
	}
	got := settledFacts(t, s)
	missing := 0
	for of := range want {
		if got[of] == nil {
			missing++
			if !report.names(of) {
				v.wrong("%s is gone, and not named in %q", of, report.Faults)
			}
		}
		if got.incomplete(of) {
			v.wrong("%s: after Repair the list of them does not end well", of)
		}
	}
	for of, lines := range got {
		if !report.partsOfLogs() { // otherwise it may be an older version
			v.record(of, want[of], lines, got)
		}
	}
	again, err := Check(t.Context(), "store", inMemory(cloned(t, fs)))
	if must(t, err); again.Err() != nil {
		v.wrong("a second check finds %q", again.Faults)
	}
	after, err := s.Check(t.Context())
	if must(t, err); after.Err() != nil {
		v.wrong("after Repair %q", after.Faults)
	}
	must(t, s.Close())
	if r.lost += missing; len(report.Faults) == 0 {
		r.whole++
		for of, lines := range want {
			if diff := cmp.Diff(lines, got[of]); diff != "" {
				v.wrong("%s, and nothing is said to be lost (-want +got):\n%s", of, diff)
			}
		}
	}
	return v
}

// partsOfLogs reports whether changes of unknown records are lost.
func (r *Report) partsOfLogs() bool {
	return slices.ContainsFunc(r.Faults, func(f Fault) bool { return strings.HasSuffix(f.Key, ".log") || f.Key == "MANIFEST" })
}

// names reports whether the report includes the loss of a record: by the name of the record,
// by the name of its job, or as a part of a table with unknown content.
func (r *Report) names(of string) bool {
	if r.partsOfLogs() {
		return true
	}
	what := strings.Fields(strings.TrimSuffix(of, ": "))
	return slices.ContainsFunc(r.Faults, func(f Fault) bool {
		return strings.HasSuffix(f.Key, ".sst") || strings.Contains(f.String(), what[len(what)-1]) || len(what) > 1 && strings.Contains(f.String(), what[1])
	})
}

// settledFacts reads and compacts everything. If the store fails because of damage, it opens
// it again.
func settledFacts(t *testing.T, s *Store) facts {
	t.Helper()
	for range 10 {
		got := lenientFacts(t, s)
		if e, err := s.engine(); err == nil && e.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false) == nil && s.Err() == nil {
			return got
		}
		must(t, s.Recover(t.Context()))
	}
	t.Fatal("the store meets damage again and again")
	return nil
}

func pick[T any](rng *rand.Rand, list []T) T { return list[rng.IntN(len(list))] }

// flip flips random bits of a file, and returns which.
func flip(t *testing.T, rng *rand.Rand, fs vfs.FS, name string, bits int) string {
	t.Helper()
	b := readFile(t, fs, name)
	said := name
	for range bits {
		at := rng.IntN(8 * len(b))
		b[at/8] ^= 1 << (at % 8)
		said += fmt.Sprintf(" bit %d", at)
	}
	writeFile(t, fs, name, b)
	return said
}

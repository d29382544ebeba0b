package disk

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/serverlesstest"
)

// Many callers use a store concurrently while time passes. A ledger compares the store with
// its earlier answers, before and after it is opened again.
func TestALoadKeepsTheInvariants(t *testing.T) {
	s := openForTest(t, t.TempDir(), &Options{Ballast: -1, Key: testKey})
	l := serverlesstest.NewLedger(s.Jobs())
	d := max(longTime(), 400*time.Millisecond)
	var now atomic.Int64
	now.Store(int64(at))
	load(t, l, &now, forDuration(d), 16, 97)
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s)
	if err := l.Check(t.Context(), s.Jobs()); err != nil {
		t.Fatal(err)
	}
	r, err := s.Check(t.Context())
	must(t, errors.Join(err, r.Err()))
	t.Logf("%d records, %d bytes", r.Records, r.Bytes)
}

// forDuration returns a function that returns true until d has passed.
func forDuration(d time.Duration) (more func() bool) {
	begin := time.Now()
	return func() bool { return time.Since(begin) < d }
}

// forJobs returns a function that returns true for its first n calls.
func forJobs(n int64) (more func() bool) {
	var asked atomic.Int64
	return func() bool { return asked.Add(1) <= n }
}

// load makes callers submit, work, cancel and read while more returns true. Each round submits
// one job. One job in big has a payload that is stored in its own table.
func load(t *testing.T, q queue.JobQueue, now *atomic.Int64, more func() bool, callers, big int) {
	t.Helper()
	ctx := t.Context()
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(c), 9))
			for i := 0; more(); i++ {
				at := queue.Instant(now.Add(int64(rng.IntN(3))))
				if err := loadStep(ctx, q, rng, at, c, i, big); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func loadStep(ctx context.Context, q queue.JobQueue, rng *rand.Rand, now queue.Instant, c, i, big int) error {
	j := newJob(fmt.Sprint("load-", made.Add(1)))
	// The ttl ends the job's life, and its retention never ends first: the ledger cannot see
	// when a tick ends a job, so it would not know when the retention starts.
	j.Submitted, j.Queued, j.Expires, j.Retain = now, now, now+queue.Instant(5_000+rng.IntN(20_000)), 1<<40*time.Millisecond
	if i%4 == 0 {
		j.Webhook, j.Flags = "https://example.org/", queue.HasWebhook
	}
	if rng.IntN(big) == 0 {
		j.Input = append(j.Input, make([]byte, 2*bigPayload)...)
	}
	if err := q.Enqueue(ctx, []queue.Job{j}); err != nil {
		return err
	}
	w := queue.WorkerID(fmt.Sprint("w", c))
	jobs, err := q.Claim(ctx, now, []queue.Slot{{Endpoint: "echo", Worker: w, N: 1 + i%2, Until: now + 500}}, nil)
	if err != nil {
		return err
	}
	ops, res := make([]queue.Op, len(jobs)), make([]queue.Result, len(jobs))
	for k, j := range jobs {
		ops[k] = queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: w, Token: j.Token, Payload: fmt.Appendf(nil, `"%x"`, uint64(j.Token))}
		switch rng.IntN(8) {
		case 0: // the lease will end
			ops[k].Kind, ops[k].Until = queue.OpRenew, now+500
		case 1:
			ops[k].Kind = queue.OpCancel
		}
	}
	if err := q.Apply(ctx, now, ops, res); err != nil {
		return err
	}
	if i%16 == 0 {
		if _, err := q.Expire(ctx, now, 256); err != nil {
			return err
		}
	}
	if i%8 == 0 {
		return loadDeliver(ctx, q, now)
	}
	return nil
}

func loadDeliver(ctx context.Context, q queue.JobQueue, now queue.Instant) error {
	ds, err := q.Deliveries(ctx, now, now+1_000, 8)
	if err != nil {
		return err
	}
	as := make([]queue.Attempt, len(ds))
	for k := range ds {
		if err := q.LoadDelivery(ctx, &ds[k]); err != nil {
			return err
		}
		as[k] = queue.Attempt{Ref: ds[k].Job.Ref, DeliveryID: ds[k].ID, Token: ds[k].Token, At: now, Status: 200}
	}
	return q.Record(ctx, as)
}

func dirSize(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		if info, err := d.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	must(t, err)
	return n
}

// Jobs are submitted, finished and deleted: the directory does not grow without limit. The
// test needs PODYARD_LONG, or PODYARD_SOAK_JOBS, the number of jobs.
func TestTheDirectoryStaysBounded(t *testing.T) {
	const parts = 50
	jobs, err := strconv.ParseInt(os.Getenv("PODYARD_SOAK_JOBS"), 10, 64)
	if err != nil && longTime() == 0 {
		t.Skip("a soak: set PODYARD_LONG to its seconds or PODYARD_SOAK_JOBS to its jobs")
	}
	dir := t.TempDir()
	s := openForTest(t, dir, &Options{Ballast: -1})
	var now atomic.Int64
	now.Store(int64(at))
	begin, before := time.Now(), made.Load()
	sizes := make([]int64, parts)
	for k := range sizes {
		more, callers, big := forDuration(longTime()/parts), 16, 97
		if jobs > 0 { // as fast as the machine can
			more, callers, big = forJobs((jobs+parts-1)/parts), 256, 1000
		}
		load(t, s.Jobs(), &now, more, callers, big)
		sizes[k] = dirSize(t, dir)
		if jobs > 0 {
			t.Logf("%d jobs, %d MiB, %v", made.Load()-before, sizes[k]>>20, time.Since(begin).Round(time.Second))
		}
	}
	done := made.Load() - before
	t.Logf("bytes of the directory: %d at most, %d at the end; %d jobs, of which %d are left; %v\n%s",
		slices.Max(sizes), sizes[parts-1], done, s.Jobs().Len(), time.Since(begin).Round(time.Second), chart(sizes, done))
	if first, second := slices.Max(sizes[:parts/2]), slices.Max(sizes[parts/2:]); second > 2*first+(256<<20) {
		t.Errorf("the directory had %d bytes in the first half of the soak and %d in the second", first, second)
	}
}

// chart draws the sizes in MiB against the number of jobs.
func chart(sizes []int64, jobs int64) string {
	const rows = 10
	step := int64(10) // MiB in a row
	for _, f := range []int64{2, 5, 10, 20, 50, 100, 200, 500} {
		if rows*step < slices.Max(sizes)>>20 {
			step = f * 10
		}
	}
	var b strings.Builder
	fmt.Fprintln(&b, "  MiB")
	for row := slices.Max(sizes)>>20/step + 1; row > 0; row-- {
		line := fmt.Sprintf("%5d |", row*step)
		for _, n := range sizes {
			// A row begins at half of its size.
			if n>>20 >= row*step-step/2 {
				line += "#"
			} else {
				line += " "
			}
		}
		fmt.Fprintln(&b, strings.TrimRight(line, " "))
	}
	fmt.Fprintf(&b, "    0 +%s\n", strings.Repeat("-", len(sizes)))
	fmt.Fprintf(&b, "       0%*s\n", len(sizes)-1, fmt.Sprintf("%d jobs", jobs))
	return b.String()
}

// childDir is the variable with the directory in which a process of this test binary works
// until it is killed.
const childDir = "PODYARD_DISK_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(harmDir); dir != "" {
		if err := runHarm(context.Background(), dir); err != nil {
			fmt.Println("error", err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	if dir := os.Getenv(childDir); dir != "" {
		if err := runChild(context.Background(), dir); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// runChild submits, claims and finishes jobs, and prints what was acknowledged.
func runChild(ctx context.Context, dir string) error {
	s, err := Open(ctx, dir, &Options{Ballast: -1})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	say := func(what string, j *queue.Job) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf("%s %s %d\n", what, j.ID, j.Token)
	}
	errs := make(chan error, 4)
	for c := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				j := newJob(fmt.Sprintf("kill-%d-%d-%d", os.Getpid(), c, i))
				if err := s.Jobs().Enqueue(ctx, []queue.Job{j}); err != nil {
					errs <- err
					return
				}
				say("submitted", &j)
				w := queue.WorkerID(fmt.Sprint("w", c))
				jobs, err := s.Jobs().Claim(ctx, at+1, []queue.Slot{{Endpoint: "echo", Worker: w, N: 1, Until: at + 60_000}}, nil)
				if err != nil || len(jobs) == 0 {
					continue
				}
				say("claimed", &jobs[0])
				op := queue.Op{Ref: jobs[0].Ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: w, Token: jobs[0].Token, Payload: fmt.Appendf(nil, "%d", jobs[0].Token)}
				res := make([]queue.Result, 1)
				if err := s.Jobs().Apply(ctx, at+2, []queue.Op{op}, res); err == nil && res[0].Err == nil {
					say("finished", &jobs[0])
				}
			}
		})
	}
	return <-errs
}

// A process is killed repeatedly while it works. Everything that it printed is on disk.
func TestWhatWasAcknowledgedSurvivesKill(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	rounds := 3
	if longTime() > 0 {
		rounds = 100
	}
	dir := t.TempDir()
	tokens := map[string]bool{}
	submitted, finished := map[string]bool{}, map[string]string{}
	for round := range rounds {
		for _, line := range killChild(t, dir, 200+round*37) {
			var what, id, token string
			if n, _ := fmt.Sscan(line, &what, &id, &token); n != 3 {
				t.Fatalf("the process said %q", line)
			}
			switch what {
			case "submitted":
				submitted[id] = true
			case "claimed":
				if tokens[token] {
					t.Fatalf("token %s was issued twice", token)
				}
				tokens[token] = true
			case "finished":
				finished[id] = token
			}
		}
		s, err := Open(t.Context(), dir, &Options{Ballast: -1})
		must(t, err)
		for id := range submitted {
			j, err := s.Jobs().Get(t.Context(), at+3, newJob(id).Ref)
			if err != nil {
				t.Fatalf("round %d: Get(%q) = %v, it was acknowledged", round, id, err)
			}
			if want, ok := finished[id]; ok && (j.Status != queue.Completed || string(j.Output) != want) {
				t.Fatalf("round %d: %q is %v with output %s, it was finished with %s", round, id, j.Status, j.Output, want)
			}
		}
		must(t, s.Close())
	}
	t.Logf("%d rounds, %d submitted, %d finished", rounds, len(submitted), len(finished))
}

// killChild runs the child until it has printed n lines, kills it, and returns the lines.
func killChild(t *testing.T, dir string, n int) (lines []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	in := bufio.NewReader(out)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			break // ignore an incomplete line
		}
		lines = append(lines, strings.TrimSpace(line))
		if len(lines) == n {
			must(t, cmd.Process.Kill())
		}
	}
	if len(lines) < n {
		t.Fatalf("the process ended by itself after %q", lines[max(0, len(lines)-1):])
	}
	_ = cmd.Wait() // killed
	return lines
}

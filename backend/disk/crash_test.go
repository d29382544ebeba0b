package disk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/serverlesstest"
)

// A crashRun uses a store in a file system that can lose power before any write. It keeps what
// a crash at each of these points would leave on disk.
type crashRun struct {
	seed    uint64
	rng     *rand.Rand
	fs      *vfs.MemFS
	mistake mistake

	ledger *serverlesstest.Ledger
	now    queue.Instant // guarded by mu, because the database may write at any time
	stale  []queue.Op    // reports of workers that have or had the lease
	made   int

	mu     sync.Mutex
	look   func(queue.Ref) (queue.State, bool) // the visible state of a job, without reading the disk
	ops    int                                 // of the file system so far
	points []crashPoint
}

// A crashPoint is the state after a crash at one operation of the file system.
type crashPoint struct {
	op     int
	fs     *vfs.MemFS
	ledger *serverlesstest.Ledger
}

func (c *crashRun) options(fs vfs.FS) *Options {
	return &Options{fs: fs, Key: testKey, Ballast: -1, wait: c.mistake.wait, memTable: 64 << 10}
}

func (c *crashRun) hook(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ops++
	if c.look != nil {
		for _, ref := range c.ledger.InFlight() {
			if s, ok := c.look(ref); ok {
				c.ledger.Observe(ref, &s)
			}
		}
	}
	// Half of the crashes lose all unsynced data, the others lose some of it.
	cfg := vfs.CrashCloneCfg{}
	if c.ops%2 == 0 {
		cfg = vfs.CrashCloneCfg{UnsyncedDataPercent: 1 + c.ops*7%100, RNG: rand.New(rand.NewPCG(c.seed, uint64(c.ops)))}
	}
	l := c.ledger.Clone()
	c.points = append(c.points, crashPoint{c.ops, c.fs.CrashClone(cfg), l})
	return nil
}

// open opens the store in wrap(fs), with the mistake.
func (c *crashRun) open(ctx context.Context, fs *vfs.MemFS, wrap func(vfs.FS) vfs.FS) (*Store, error) {
	if c.mistake.before != nil {
		if err := c.mistake.before(fs); err != nil {
			return nil, err
		}
	}
	var under vfs.FS = fs
	if c.mistake.fs != nil {
		under = c.mistake.fs(fs)
	}
	return Open(ctx, "store", c.options(wrap(under)))
}

// work opens the store and makes a number of random steps.
func (c *crashRun) work(ctx context.Context, steps int) error {
	s, err := c.open(ctx, c.fs, func(fs vfs.FS) vfs.FS { return errorfs.Wrap(fs, errorfs.InjectorFunc(c.hook)) })
	if err != nil {
		return err
	}
	e, err := s.engine()
	if err != nil {
		return err
	}
	// The ledger compares this state of a job with the one it expects while a call is under
	// way.
	look := func(ref queue.Ref) (queue.State, bool) {
		v, ok := e.jobs.lookup(c.now, ref)
		return v.job.State, ok && (v.job.Status == queue.InQueue || v.job.Status.Terminal())
	}
	if err := c.ledger.Check(ctx, c.mistake.around(s.Jobs(), e)); err != nil {
		return errors.Join(err, s.Close())
	}
	c.mu.Lock()
	c.look = look
	c.mu.Unlock()
	for range steps {
		if err := c.step(ctx); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	c.mu.Lock()
	c.look = nil
	c.mu.Unlock()
	return errors.Join(c.ledger.Err(), s.Close())
}

func (c *crashRun) step(ctx context.Context) error {
	q := c.ledger
	switch n := c.rng.IntN(20); {
	case n < 6:
		return q.Enqueue(ctx, c.jobs())
	case n < 10:
		return c.claim(ctx)
	case n < 15:
		return c.end(ctx)
	case n < 16:
		return c.user(ctx)
	case n < 17:
		return c.deliver(ctx)
	default:
		return c.advance(ctx)
	}
}

func (c *crashRun) jobs() []queue.Job {
	jobs := make([]queue.Job, 1+c.rng.IntN(2))
	for i := range jobs {
		c.made++
		j := newJob(fmt.Sprintf("job-%d-%d", c.seed, c.made))
		j.Submitted, j.Queued, j.Expires = c.now, c.now, c.now+queue.Instant(20_000+c.rng.IntN(500_000))
		j.Retain = time.Duration(10_000+c.rng.IntN(200_000)) * time.Millisecond
		if c.rng.IntN(3) == 0 {
			j.Webhook, j.Flags = "https://example.org/"+string(j.ID), queue.HasWebhook
		}
		if c.rng.IntN(3) == 0 {
			j.Flags |= queue.DurableAtEnd
		}
		if c.rng.IntN(2) == 0 {
			j.Retry = queue.RetryPolicy{Attempts: 3, Timeouts: true, Factor: 2, Jitter: 0.5, Delay: 500 * time.Millisecond, MaxDelay: time.Second}
		}
		if c.rng.IntN(2) == 0 {
			j.Key = fmt.Sprint("key-", c.rng.IntN(3))
		}
		j.Priority = uint8(c.rng.IntN(queue.MaxPriority + 1))
		if c.rng.IntN(2) == 0 {
			j.DeadLetter = time.Duration(10_000+c.rng.IntN(500_000)) * time.Millisecond
		}
		if c.rng.IntN(8) == 0 {
			j.Queued, j.Delayed = c.now+queue.Instant(1+c.rng.IntN(4_000)), true
		}
		if c.rng.IntN(16) == 0 {
			j.Input = append(j.Input, make([]byte, bigPayload)...)
		}
		jobs[i] = j
	}
	return jobs
}

func (c *crashRun) claim(ctx context.Context) error {
	w := queue.WorkerID(fmt.Sprint("w", c.rng.IntN(4)))
	jobs, err := c.ledger.Claim(ctx, c.now, []queue.Slot{{Endpoint: "echo", Worker: w, N: 1 + c.rng.IntN(2), Until: c.now + 3_000, Rules: &queue.Rules{PerKey: 2, Ageing: time.Second}}}, nil)
	for _, j := range jobs {
		c.stale = append(c.stale, queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Worker: w, Token: j.Token})
	}
	return err
}

// end makes a worker report on a job that it has or had. Each token has its own result.
func (c *crashRun) end(ctx context.Context) error {
	if len(c.stale) == 0 {
		return nil
	}
	op := c.stale[c.rng.IntN(len(c.stale))]
	op.Payload, op.Status = fmt.Appendf(nil, `"%x"`, uint64(op.Token)), queue.Completed
	switch c.rng.IntN(6) {
	case 0:
		op.Kind, op.Until = queue.OpRenew, c.now+3_000
	case 1:
		op.Kind = queue.OpChunk
	case 2, 3:
		op.Status = queue.Failed
	}
	return c.apply(ctx, op)
}

func (c *crashRun) apply(ctx context.Context, op queue.Op) error {
	res := make([]queue.Result, 1)
	return c.ledger.Apply(ctx, c.now, []queue.Op{op}, res)
}

// user makes the owner of a job cancel it, retry it or change its expiry, or makes its input
// damaged.
func (c *crashRun) user(ctx context.Context) error {
	if c.made == 0 {
		return nil
	}
	op := queue.Op{Ref: newJob(fmt.Sprintf("job-%d-%d", c.seed, 1+c.rng.IntN(c.made))).Ref}
	op.Kind = [...]queue.OpKind{queue.OpCancel, queue.OpRetry, queue.OpSetTTL, queue.OpDamage, queue.OpDelete}[c.rng.IntN(5)]
	op.Until = c.now + 50_000
	return c.apply(ctx, op)
}

func (c *crashRun) deliver(ctx context.Context) error {
	ds, err := c.ledger.Deliveries(ctx, c.now, c.now+1_000, 2)
	if err != nil {
		return err
	}
	for i := range ds {
		if err := c.ledger.LoadDelivery(ctx, &ds[i]); err != nil {
			return err
		}
		a := queue.Attempt{Ref: ds[i].Job.Ref, DeliveryID: ds[i].ID, Token: ds[i].Token, At: c.now, Status: 200}
		if c.rng.IntN(3) == 0 {
			a.Next = c.now + 500
		}
		if err := c.ledger.Record(ctx, []queue.Attempt{a}); err != nil {
			return err
		}
	}
	return nil
}

// advance lets time pass, and reads the jobs.
func (c *crashRun) advance(ctx context.Context) error {
	c.mu.Lock()
	c.now += queue.Instant(c.rng.IntN(4_000))
	c.mu.Unlock()
	if _, err := c.ledger.Expire(ctx, c.now, 100); err != nil {
		return err
	}
	if c.rng.IntN(8) == 0 && c.made > 0 {
		if err := c.ledger.DropDead(ctx, []queue.Ref{newJob(fmt.Sprintf("job-%d-%d", c.seed, 1+c.rng.IntN(c.made))).Ref}); err != nil {
			return err
		}
	}
	if c.rng.IntN(8) == 0 {
		if _, _, err := c.ledger.Purge(ctx, c.now, queue.PurgeQuery{Endpoint: "echo", UpTo: ^uint64(0), Limit: 3}); err != nil {
			return err
		}
	}
	for i := range c.made {
		_, err := c.ledger.Get(ctx, c.now, newJob(fmt.Sprintf("job-%d-%d", c.seed, i+1)).Ref)
		if err != nil && !errors.Is(err, queue.ErrNotFound) {
			return err
		}
	}
	return nil
}

// verifyCrash opens what a crash has left and compares it with the ledger. Then workers
// continue.
func (c *crashRun) verifyCrash(ctx context.Context, p *crashPoint) (err error) {
	s, err := c.open(ctx, p.fs, func(fs vfs.FS) vfs.FS { return fs })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	e, err := s.engine()
	if err != nil {
		return err
	}
	if err := p.ledger.Check(ctx, c.mistake.around(s.Jobs(), e)); err != nil {
		return err
	}
	after := &crashRun{rng: rand.New(rand.NewPCG(c.seed, uint64(p.op))), ledger: p.ledger, now: p.ledger.Now(), stale: c.stale}
	if err := after.claim(ctx); err != nil {
		return err
	}
	for range 3 {
		if err := after.end(ctx); err != nil {
			return err
		}
	}
	if p.op%16 == 0 {
		r, err := s.Check(ctx)
		if err := errors.Join(err, r.Err()); err != nil {
			return err
		}
	}
	return p.ledger.Err()
}

// crash runs one seed: several generations of work, each of which begins after a crash of the
// previous one. It verifies every crash point and returns their number.
func crash(ctx context.Context, seed uint64, m mistake) (points int, err error) {
	c := &crashRun{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 2)), fs: vfs.NewCrashableMem(), mistake: m,
		ledger: serverlesstest.NewLedger(nil), now: at,
	}
	for gen := range 3 {
		c.points = nil
		if err := c.work(ctx, 40); err != nil {
			return points, fmt.Errorf("seed %d, generation %d: %w", seed, gen, err)
		}
		// The next generation begins at a random crash point.
		p := &c.points[c.rng.IntN(len(c.points))]
		fs, ledger := p.fs.CrashClone(vfs.CrashCloneCfg{}), p.ledger.Clone()
		for k := range c.points {
			if err := c.verifyCrash(ctx, &c.points[k]); err != nil {
				return points, fmt.Errorf("seed %d, operation %d: %w", seed, c.points[k].op, err)
			}
			points++
		}
		c.fs, c.ledger = fs, ledger
	}
	return points, nil
}

// longTime returns how long a long test may take, from PODYARD_LONG in seconds. It returns 0 if
// the variable is not set: the test is then short.
func longTime() time.Duration {
	n, err := strconv.Atoi(os.Getenv("PODYARD_LONG"))
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}

// TestNothingAcknowledgedIsLostInACrash crashes at every operation of the file system: at
// several hundred points, or at ten thousand or more with PODYARD_LONG.
func TestNothingAcknowledgedIsLostInACrash(t *testing.T) {
	want := 600
	if longTime() > 0 {
		want = 10_000
	}
	begin, points := time.Now(), 0
	for seed := uint64(0); points < want || time.Since(begin) < longTime(); seed++ {
		n, err := crash(t.Context(), seed, mistake{})
		if points += n; err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d crash points", points)
}

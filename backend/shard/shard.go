package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/servers"
)

// A Shard is a queue that has the jobs of some endpoints.
type Shard struct {
	Name string // identifies it for good, whatever Jobs is; 1 to 128 bytes
	Jobs queue.JobQueue
	// Closed keeps new endpoints from the shard. Those that are there stay until they are moved.
	Closed bool
}

// Control keeps where endpoints are, for all servers. The Servers of backend/memory and
// backend/postgres are ones.
type Control interface {
	servers.Leases
	servers.Records
}

// A Clock has the time: Now, and AfterFunc(t, f), which calls f once Now has reached t and returns a
// stop that reports whether it prevented the call. f must not block. It is one type in all packages.
type Clock = clock.Clock

// Options are the options of a Queue.
type Options struct {
	Shards  []Shard // at least one
	Control Control
	// Server is the id of this server, unique among those that use Control.
	Server string
	// Adopt is the name of the shard that was the only queue before; empty: there was none. An
	// endpoint without a pin is pinned to it if it ever had jobs there.
	Adopt string
	// Logger gets moves, and when a shard begins or ceases to fail. Default: nothing is logged.
	Logger *slog.Logger
	// Clock is the clock of leases. Default: the system's.
	Clock Clock
}

// A Queue is several queues as one. It is safe for concurrent use. It does not close them: whoever
// opened them does.
type Queue struct {
	o       Options
	members []*member // in the order of names
	byName  map[string]*member

	syncMu sync.Mutex
	syncs  atomic.Uint64 // that were begun
	synced uint64        // the last one that succeeded; guarded by syncMu
	epoch  uint64        // of the lease; guarded by syncMu

	mu    sync.Mutex
	pins  map[string]*entry
	seen  int64            // the last version that was read
	held  map[string]int64 // versions of holds whose endpoints still have submits under way
	valid time.Time        // until when the pins are known to be at most one step behind

	budgets  budgets
	reportMu sync.Mutex
	rotation atomic.Uint32
}

var (
	_ queue.JobQueue = (*Queue)(nil)
	_ queue.Shared   = (*Queue)(nil)
	_ queue.Counter  = (*Queue)(nil)

	_ queue.OwnerLister = (*Queue)(nil)
	_ queue.Reporter    = (*Queue)(nil)
	_ queue.Measurer    = (*Queue)(nil)
)

// A member is a shard with its health.
type member struct {
	Shard
	number uint64

	mu    sync.Mutex
	err   error
	since time.Time
	again time.Time // when it is asked again by what asks all shards
}

const (
	maxName    = 128
	maxShards  = 1 << 10
	tokenShift = 53
	tokenMask  = 1<<tokenShift - 1

	leaseTTL   = 15 * time.Second
	skew       = time.Second      // that clocks of servers may differ by
	askAgain   = time.Second      // after a shard failed
	patience   = 5 * time.Second  // with a shard when all are asked
	holdLimit  = 30 * time.Second // of a hold that does not end, and of a submit that waits for it
	numbersKey = "shard/numbers"
	pinPrefix  = "shard/pin/"
	nodePrefix = "shard/node/"
)

// New returns a Queue. It registers the names of the shards in the control store, and asks no shard.
// Run must be called too.
func New(ctx context.Context, o Options) (*Queue, error) {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	q := &Queue{o: o, byName: map[string]*member{}, pins: map[string]*entry{}, held: map[string]int64{}}
	for _, s := range o.Shards {
		switch {
		case s.Name == "" || len(s.Name) > maxName || s.Jobs == nil:
			return nil, problem.Newf(problem.Invalid, "a shard has a name of 1 to %d bytes, and a queue", maxName)
		case q.byName[s.Name] != nil:
			return nil, problem.Newf(problem.Invalid, "two shards have the name %q", s.Name)
		}
		q.byName[s.Name] = &member{Shard: s}
		q.members = append(q.members, q.byName[s.Name])
	}
	switch {
	case len(o.Shards) == 0 || o.Control == nil || o.Server == "":
		return nil, problem.New(problem.Invalid, "a queue of shards needs a shard, a control store and the id of its server")
	case o.Adopt != "" && q.byName[o.Adopt] == nil:
		return nil, problem.Newf(problem.Invalid, "no shard has the name %q", o.Adopt)
	}
	if err := q.register(ctx); err != nil {
		return nil, err
	}
	return q, q.sync(ctx)
}

// register gives each shard its number, which never changes.
func (q *Queue) register(ctx context.Context) error {
	for {
		numbers, version, err := q.numbers(ctx)
		if err != nil {
			return err
		}
		fresh := false
		for _, s := range q.o.Shards { // the first one of a new store has number 0: its tokens stay as they are
			n, ok := numbers[s.Name]
			if !ok {
				n, fresh = uint64(len(numbers)), true
				numbers[s.Name] = n
			}
			q.byName[s.Name].number = n
		}
		if len(numbers) > maxShards {
			return problem.Newf(problem.Invalid, "there were more than %d names of shards", maxShards)
		}
		if !fresh {
			return nil
		}
		data, err := json.Marshal(numbers)
		if err == nil {
			_, err = q.o.Control.Put(ctx, servers.Record{Key: numbersKey, Version: version, Data: data})
		}
		if err == nil || !errors.Is(err, servers.ErrChanged) {
			return err
		}
	}
}

// numbers returns the numbers of all shards that there ever were.
func (q *Queue) numbers(ctx context.Context) (numbers map[string]uint64, version int64, err error) {
	numbers = map[string]uint64{}
	for after := int64(0); ; {
		list, err := q.o.Control.Changes(ctx, after, page)
		if err != nil || len(list) == 0 {
			return numbers, version, err
		}
		for i := range list {
			if after = list[i].Version; list[i].Key == numbersKey {
				version = after
				if err := json.Unmarshal(list[i].Data, &numbers); err != nil {
					return nil, 0, fmt.Errorf("shard: the record %s: %w", numbersKey, err)
				}
			}
		}
	}
}

// Shared implements queue.Shared.
func (q *Queue) Shared() bool {
	return slices.ContainsFunc(q.members, func(m *member) bool { return queue.IsShared(m.Jobs) })
}

// Health is how a shard is.
type Health struct {
	Shard string
	Err   error     // of its last call; nil: it answers
	Since time.Time // of Err
}

// Health returns how the shards are, in the order of Options.
func (q *Queue) Health() []Health {
	list := make([]Health, len(q.members))
	for i, m := range q.members {
		m.mu.Lock()
		list[i] = Health{Shard: m.Name, Err: m.err, Since: m.since}
		m.mu.Unlock()
	}
	return list
}

// failed reports whether err is one of a shard that does not answer.
func failed(err error) bool {
	if err == nil || errors.Is(err, queue.ErrDamaged) || errors.Is(err, context.Canceled) {
		return false
	}
	kind := problem.KindOf(err)
	return kind == problem.Unavailable || kind == problem.Internal
}

// note keeps how a call of a shard has ended, and names the shard in an error of it.
func (q *Queue) note(m *member, err error) error {
	bad := failed(err)
	m.mu.Lock()
	was := m.err
	switch now := q.o.Clock.Now(); {
	case bad:
		if was == nil {
			m.since = now
		}
		m.err, m.again = err, now.Add(askAgain)
	case !errors.Is(err, context.Canceled):
		m.err, m.since, m.again = nil, time.Time{}, time.Time{}
	}
	is := m.err
	m.mu.Unlock()
	if (was == nil) != (is == nil) {
		q.o.Logger.Warn("a shard began or ceased to fail", "shard", m.Name, "err", is)
	}
	if bad {
		return fmt.Errorf("shard %s: %w", m.Name, err)
	}
	return err
}

// rests reports whether a shard has just failed.
func (q *Queue) rests(m *member) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return q.o.Clock.Now().Before(m.again)
}

// choose returns the shard for a new endpoint: of those that are open and answer, the one with the
// highest hash of its name and the endpoint.
func (q *Queue) choose(endpoint string) *member {
	var best *member
	var top, score uint64
	for _, strict := range []bool{true, false} {
		for _, m := range q.members {
			if m.Closed || strict && q.rests(m) {
				continue
			}
			if score = weight(m.Name, endpoint); best == nil || score > top {
				best, top = m, score
			}
		}
		if best != nil {
			return best
		}
	}
	return q.members[0]
}

func weight(name, endpoint string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name + "\x00" + endpoint))
	x := h.Sum64() // FNV alone hardly changes the high bits at the end: the finalizer of SplitMix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// out changes a state of a shard to what callers see.
func (m *member) out(s *queue.State, base uint64) {
	if s.Seq != 0 {
		s.Seq += base
	}
	s.Token = m.token(s.Token)
}

func (m *member) token(t queue.Token) queue.Token {
	if t == 0 {
		return 0
	}
	return t | queue.Token(m.number<<tokenShift)
}

// inner returns the token of a caller as the shard has it. One of another shard is no lease here.
func (m *member) inner(t queue.Token) queue.Token {
	if t == 0 || uint64(t)>>tokenShift == m.number {
		return t & tokenMask
	}
	return t | 1<<63
}

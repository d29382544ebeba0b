package jobindex

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/podyard/podyard/serverless/queue"
)

// A listModel is what a jobList should have: the live refs, in the order of Seq.
type listModel struct {
	l     jobList
	alive []ref
	seq   uint64
}

func (m *listModel) isAlive(r ref) bool {
	_, ok := slices.BinarySearchFunc(m.alive, r.seq, func(a ref, seq uint64) int {
		return int(int64(a.seq) - int64(seq))
	})
	return ok && r.rec != 0
}

// rest returns the live refs from a cursor on. It does not move the cursor.
func (m *listModel) rest(c cursor) (list []ref) {
	for {
		r, ok := m.l.peek(&c)
		if !ok {
			return list
		}
		if m.isAlive(r) {
			list = append(list, r)
		}
		c.i++
	}
}

func (m *listModel) above(seq uint64) []ref {
	at, _ := slices.BinarySearchFunc(m.alive, seq+1, func(a ref, seq uint64) int { return int(int64(a.seq) - int64(seq)) })
	return m.alive[at:]
}

// After any removals a list has the live refs, in order, from its beginning, after any Seq and
// from its cursors; and it frees memory.
func TestAListKeepsLiveRefs(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			m := &listModel{}
			passed := uint64(0) // the Seq that the cursor has passed
			for range 4_000 {
				switch random.IntN(5) {
				case 0, 1:
					for range random.IntN(40 << random.IntN(4)) {
						m.seq += 1 + uint64(random.IntN(2)) // other endpoints have some of them
						m.l.append(m.seq, uint32(m.seq))
						m.alive = append(m.alive, ref{m.seq, uint32(m.seq)})
					}
				case 2:
					passed = m.walk(random, passed)
				default:
					m.kill(random)
				}
				if random.IntN(20) == 0 {
					m.compare(t, random, passed)
				}
			}
			for len(m.alive) > 0 {
				m.forget(len(m.alive) - 1)
			}
			m.compare(t, random, passed)
			if n := len(m.l.chunks); n > 0 {
				t.Errorf("%d pieces are left when nothing is alive, want none", n)
			}
		})
	}
}

// walk advances the cursor.
func (m *listModel) walk(random *rand.Rand, passed uint64) uint64 {
	for range random.IntN(600) {
		r, ok := m.l.peek(&m.l.oldest)
		if !ok {
			break
		}
		m.l.oldest.i++
		passed = r.seq
	}
	return passed
}

// kill removes some refs: the oldest, any, or almost all of a range.
func (m *listModel) kill(random *rand.Rand) {
	if len(m.alive) == 0 {
		return
	}
	from := 0
	if random.IntN(2) == 0 {
		from = random.IntN(len(m.alive))
	}
	keep := [...]int{1, 2, 50}[random.IntN(3)] // one in so many stays; 1: they go one by one
	n := random.IntN(1_200)
	for i := from; i < len(m.alive) && n > 0; n-- {
		if keep > 1 && random.IntN(keep) == 0 {
			i++
			continue
		}
		m.forget(i)
	}
}

func (m *listModel) forget(i int) {
	seq := m.alive[i].seq
	m.alive = slices.Delete(m.alive, i, i+1)
	if m.l.remove(seq) {
		m.l.compact(seq, m.isAlive)
	}
}

func (m *listModel) compare(t *testing.T, random *rand.Rand, passed uint64) {
	t.Helper()
	if got := m.rest(cursor{}); !slices.Equal(got, m.alive) {
		t.Fatalf("the line has %d refs from its beginning, want %d", len(got), len(m.alive))
	}
	if got, want := m.rest(m.l.oldest), m.above(passed); !slices.Equal(got, want) {
		t.Fatalf("the line has %d refs behind its cursor, which passed %d, want %d", len(got), passed, len(want))
	}
	seq := uint64(random.Int64N(int64(m.seq) + 2))
	if got, want := m.rest(m.l.after(seq)), m.above(seq); !slices.Equal(got, want) {
		t.Fatalf("the line has %d refs above %d, want %d", len(got), seq, len(want))
	}
	live := 0
	for _, p := range m.l.chunks {
		live += p.live
	}
	if live != len(m.alive) {
		t.Fatalf("the pieces count %d living refs, want %d", live, len(m.alive))
	}
}

// Requeued jobs are returned in the order of Seq.
func TestRequeuedJobsAreInOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 0))
	var l seqHeap
	var want []uint64
	for range 5_000 {
		if random.IntN(3) > 0 || len(want) == 0 {
			seq := random.Uint64N(1_000)
			l.push(ref{seq: seq})
			want = append(want, seq)
			slices.Sort(want)
			continue
		}
		if got := l.pop().seq; got != want[0] {
			t.Fatalf("the front gave Seq %d, want %d", got, want[0])
		}
		want = want[1:]
	}
}

// A few long-lived jobs do not keep the memory of many.
func TestSparseChunksAreMerged(t *testing.T) {
	x := New()
	for i := range 100 * chunkSize {
		ref := queue.Ref{Endpoint: [...]string{"odd", "even"}[i%2], ID: queue.JobID(fmt.Sprint(i))}
		s := queue.State{Seq: uint64(i + 1), Expires: 1_000}
		if i%100 < 2 {
			s.Expires = 2_000
		}
		rec, _ := x.Add(ref, "", "", 0)
		x.Show(rec, &s)
	}
	for budget := 1 << 20; ; {
		i := x.TakeDue(1_000, &budget)
		if i == 0 {
			break
		}
		s := x.State(i)
		x.Commit(i, &s, queue.Delete)
	}
	for _, endpoint := range []string{"odd", "even"} {
		pieces := len(x.listOf(endpoint).chunks)
		if pieces > 10 {
			t.Errorf("%d jobs of endpoint %s are left in %d pieces, want 10 at most", chunkSize, endpoint, pieces)
		}
	}
	if x.Len() != 2*chunkSize {
		t.Errorf("%d jobs are left, want %d", x.Len(), 2*chunkSize)
	}
}

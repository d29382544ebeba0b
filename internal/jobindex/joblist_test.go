package jobindex

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/podyard/podyard/serverless/queue"
)

// A listedJob is a job as the lists should have it.
type listedJob struct {
	seq    uint64
	owner  string
	status queue.Status
}

// A listModel is an index with the jobs of one endpoint, and what its lists should have: the jobs, in
// the order of Seq.
type listModel struct {
	x     *Index
	alive []listedJob
	recs  map[uint64]uint32
	seq   uint64
	made  int
}

func (m *listModel) add(owner string, s queue.Status) {
	m.seq++
	m.made++
	i, _ := m.x.Add(queue.Ref{Endpoint: "e", ID: queue.JobID(fmt.Sprint(m.made))}, owner, "", 0)
	m.x.Show(i, m.state(m.seq, s))
	m.alive, m.recs[m.seq] = append(m.alive, listedJob{m.seq, owner, s}), i
}

// state returns a state of a job that is never due.
func (m *listModel) state(seq uint64, s queue.Status) *queue.State {
	return &queue.State{Seq: seq, Status: s, Expires: 1 << 50, RunUntil: 1 << 50, LeaseUntil: 1 << 50, Finished: 1 << 50}
}

func (m *listModel) change(at int, s queue.Status) {
	m.x.Commit(m.recs[m.alive[at].seq], m.state(m.alive[at].seq, s), queue.Put)
	m.alive[at].status = s
}

// requeue gives a job a new Seq.
func (m *listModel) requeue(at int) {
	j := m.alive[at]
	i := m.recs[j.seq]
	delete(m.recs, j.seq)
	m.seq++
	m.x.Commit(i, m.state(m.seq, queue.InQueue), queue.Put|queue.NewSeq|queue.EvReady)
	m.alive = append(slices.Delete(m.alive, at, at+1), listedJob{m.seq, j.owner, queue.InQueue})
	m.recs[m.seq] = i
}

func (m *listModel) forget(at int) {
	j := m.alive[at]
	m.x.Commit(m.recs[j.seq], m.state(j.seq, j.status), queue.Delete)
	m.alive = slices.Delete(m.alive, at, at+1)
	delete(m.recs, j.seq)
}

// kill removes some jobs: the oldest, any, or almost all of a range.
func (m *listModel) kill(random *rand.Rand) {
	if len(m.alive) == 0 {
		return
	}
	from := random.IntN(2) * random.IntN(len(m.alive))
	keep := [...]int{1, 2, 50}[random.IntN(3)] // one in so many stays; 1: they go one by one
	n := random.IntN(1_200 << random.IntN(3))
	for i := from; i < len(m.alive) && n > 0; n-- {
		if keep > 1 && random.IntN(keep) == 0 {
			i++
			continue
		}
		m.forget(i)
	}
}

// compare reads a page of a random query, and what can be purged of it.
func (m *listModel) compare(t *testing.T, random *rand.Rand) {
	t.Helper()
	q := queue.ListQuery{Endpoint: "e", Owner: [...]string{"", "a", "b", "c", "hidden"}[random.IntN(5)], Before: random.Uint64N(m.seq+2) * random.Uint64N(2)}
	for s := queue.InQueue; s <= queue.TimedOut; s++ {
		if random.IntN(3) == 0 {
			q.Status = append(q.Status, s)
		}
	}
	var all, page, queued []uint64
	for _, j := range slices.Backward(m.alive) {
		if (q.Owner == "" || j.owner == q.Owner) && (len(q.Status) == 0 || slices.Contains(q.Status, j.status)) {
			all = append(all, j.seq)
			if q.Before == 0 || j.seq < q.Before {
				page = append(page, j.seq)
			}
		}
		if (q.Owner == "" || j.owner == q.Owner) && j.status == queue.InQueue && j.seq > q.Before {
			queued = append([]uint64{j.seq}, queued...)
		}
	}
	if got := m.x.Count(0, &q); got != len(all) {
		t.Fatalf("Count of %+v = %d, want %d", q, got, len(all))
	}
	for range 20 {
		q.Offset, q.Limit = random.IntN(2)*random.IntN(len(all)+2), random.IntN(200)
		m.comparePage(t, q, page)
	}
	var got []uint64
	for after := q.Before; ; {
		after = m.x.Queued("e", q.Owner, after, 1<<63, 70, func(i uint32) bool { got = append(got, m.x.t.at(i).seq); return true })
		if after == 0 {
			break
		}
	}
	if !slices.Equal(got, queued) {
		t.Fatalf("%d jobs of %q are queued above %d, want %d", len(got), q.Owner, q.Before, len(queued))
	}
}

// comparePage reads a page of what q selects without its Offset and Limit.
func (m *listModel) comparePage(t *testing.T, q queue.ListQuery, all []uint64) {
	t.Helper()
	page := all[min(q.Offset, len(all)):]
	if q.Limit > 0 {
		page = page[:min(q.Limit, len(page))]
	}
	asked := q
	var got []uint64
	for l, more := NewListing(&q), true; more; {
		more = m.x.Next(l, 0, 100, func(i uint32) { got = append(got, m.x.t.at(i).seq) })
	}
	if !slices.Equal(got, page) {
		t.Fatalf("a listing of %+v has %d jobs, want %d, or others:\n%v\n%v", asked, len(got), len(page), got, page)
	}
}

// After any changes the lists of an endpoint and of its owners have the jobs, in order, and free memory. Another
// owner comes while there are jobs of the first one, and the first one may go.
func TestListsHaveTheJobsOfTheirOwners(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			m := &listModel{x: New(), recs: map[uint64]uint32{}}
			m.x.Add(queue.Ref{Endpoint: "e", ID: "hidden"}, "hidden", "", 0) // until it is shown, no list has it
			owners := 1
			for step := range 1_200 {
				if step == 300 || random.IntN(400) == 0 {
					owners = 1 + random.IntN(3)
				}
				switch random.IntN(6) {
				case 0, 1:
					for range random.IntN(100 << random.IntN(5)) {
						m.add([...]string{"a", "b", "c"}[random.IntN(owners)], queue.Status(random.IntN(statuses)))
					}
				case 2, 3:
					for range random.IntN(200) * min(len(m.alive), 1) {
						if at := random.IntN(len(m.alive)); random.IntN(10) == 0 {
							m.requeue(at)
						} else {
							m.change(at, queue.Status(random.IntN(statuses)))
						}
					}
				default:
					m.kill(random)
				}
				if random.IntN(3) == 0 {
					m.compare(t, random)
				}
				if random.IntN(300) == 0 {
					m.end(t)
				}
			}
			m.compare(t, random)
			m.end(t)
		})
	}
}

// end removes all jobs.
func (m *listModel) end(t *testing.T) {
	t.Helper()
	for len(m.alive) > 0 {
		m.forget(len(m.alive) - 1)
	}
	if l := m.x.listOf("e"); l != nil && len(l.all.chunks) > 0 {
		t.Errorf("%d chunks are left when there are no jobs, want none", len(l.all.chunks))
	}
	if used := len(m.x.chunks) - 1 - len(m.x.freeChunks); used != 0 {
		t.Errorf("%d chunks are in use when there are no jobs, want none", used)
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
		pieces := len(x.listOf(endpoint).all.chunks)
		if pieces > 10 {
			t.Errorf("%d jobs of endpoint %s are left in %d pieces, want 10 at most", chunkSize, endpoint, pieces)
		}
	}
	if x.Len() != 2*chunkSize {
		t.Errorf("%d jobs are left, want %d", x.Len(), 2*chunkSize)
	}
}

package postgres

import (
	"errors"
	"slices"
	"sync"

	"github.com/podyard/podyard/serverless/queue"
)

// Most moves are of jobs in progress that this Store has claimed or renewed last, so it knows what
// their rows hold. It need not lock and read them first: it writes what follows from that, and the
// statement that changes the rows also compares them. If one is not as it was thought to be, the
// statement fails, nothing is changed, and the moves are made again with the rows locked.

// sqlAsKnown fails unless the first of some merged statements, sqlUpdate, has changed so many rows. It
// is read before the changes of the others are made.
const sqlAsKnown = `SELECT 1 / (count(*) = $1)::int FROM s0`

// errChanged: a job is not as it was thought to be, or it may be not.
var errChanged = errors.New("postgres: a job was changed by somebody else")

// maxHeld is how many jobs a Store knows. Those that others have ended stay until there are more.
const maxHeld = 1 << 14

// A heldJobs are jobs in progress with what their rows hold after the last move of this Store.
type heldJobs struct {
	most int

	mu   sync.Mutex
	list map[queue.Ref]jobRow
}

// take returns the rows of those of refs that are known, and whether all are.
func (h *heldJobs) take(refs []queue.Ref) (rows []*jobRow, all bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ref := range refs {
		if r, ok := h.list[ref]; ok {
			r.known = knownRow{armed: r.armed, state: encodeState(&r.job.State)}
			rows = append(rows, &r)
		}
	}
	return rows, len(rows) == len(refs)
}

// moved records what was committed.
func (h *heldJobs) moved(moves []roundMove) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range moves { // in the order of the moves
		h.put(moves[i].row, &moves[i].after, moves[i].effect)
	}
}

func (h *heldJobs) put(r *jobRow, s *queue.State, e queue.Effect) {
	if e&queue.Delete != 0 || s.Status != queue.InProgress {
		delete(h.list, r.job.Ref)
		return
	}
	if h.list == nil {
		h.list = map[queue.Ref]jobRow{}
	}
	if _, ok := h.list[r.job.Ref]; !ok && len(h.list) >= h.most {
		for ref := range h.list { // any one
			delete(h.list, ref)
			break
		}
	}
	j := &r.job
	h.list[j.Ref] = jobRow{num: r.num, armed: r.armed, job: queue.Job{Ref: j.Ref, Owner: j.Owner, Key: j.Key, State: *s}}
}

// forget is called when nobody knows what became of moves, or somebody else has made one.
func (h *heldJobs) forget(refs []queue.Ref) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ref := range refs {
		delete(h.list, ref)
	}
}

// A knownRow is what a row holds that is not locked. state is nil for a locked row.
type knownRow struct {
	armed queue.Instant
	state []byte
}

// hold has the mover work with rows that are not locked.
func (m *mover) hold(rows []*jobRow) {
	for _, r := range rows {
		m.rows[r.job.Ref] = r
	}
	m.unlocked = rows
}

// endsKnown reports whether a move ends a job that is not locked and had no output. An empty output of a
// progress is there nevertheless: the statement that adds the next one then fails, and the move is made
// again as if somebody else had changed the job.
func (m *move) endsKnown() bool {
	return m.row.known.state != nil && m.op.Kind == queue.OpFinish && m.before.OutBytes == 0
}

// checkKnown returns errChanged if the result of a call could be wrong without a comparison of its
// job: each job that is not locked must change once, and not be deleted.
func (m *mover) checkKnown() error {
	if len(m.unlocked) == 0 {
		return nil
	}
	if len(m.moves) != len(m.depth) { // several moves of a job
		return errChanged
	}
	for i := range m.moves {
		if v := &m.moves[i]; v.row.known.state != nil && v.effect&queue.Delete != 0 {
			return errChanged
		}
	}
	for _, r := range m.unlocked {
		if m.depth[r] == 0 {
			return errChanged
		}
	}
	return nil
}

// sortMoves has rows that are not locked be changed in the order in which they would be locked.
func (m *mover) sortMoves() {
	if len(m.unlocked) > 0 {
		slices.SortFunc(m.moves, func(a, b roundMove) int { return compareRefs(a.row.job.Ref, b.row.job.Ref) })
	}
}

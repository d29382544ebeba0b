package postgres

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// unsureMoves are moves of jobs whose commit had no answer. The caller has got ErrUnknown, and is likely to
// repeat the call: a worker that streams through an outage sends its chunk again. Such a repetition finds the
// job locked. If the job is exactly as the first call would have left it, that call was made, and the
// repetition gets its result. Without this a chunk would be in the stream twice, and the end of a job would be
// refused because the job has ended.
type unsureMoves struct {
	mu sync.Mutex
	of map[queue.Ref]*unsureJob
}

// unsureTime is how long a repetition is expected: callers wait for the database for half a minute.
const unsureTime = 2 * time.Minute

// An unsureJob is a job with the moves of one transaction.
type unsureJob struct {
	until time.Time
	after queue.State // of all moves
	made  bool        // the job was found like that, and may have moved on since
	moves []*unsureMove
}

type unsureMove struct {
	op     queue.Op // its payload is the digest
	res    queue.Result
	worker queue.WorkerID // before the move
}

func digest(payload []byte) []byte {
	sum := sha256.Sum256(payload)
	return sum[:]
}

// is reports whether an op is a repetition. A replacement is none: it may be made twice, and another one
// looks the same.
func (u *unsureMove) is(op *queue.Op) bool {
	a := &u.op
	return a.Kind != queue.OpReplace && a.Kind == op.Kind && a.Status == op.Status && a.Worker == op.Worker && a.Token == op.Token && a.From == op.From && a.N == op.N && a.Untouched == op.Untouched &&
		a.Error == op.Error && bytes.Equal(a.Payload, digest(op.Payload))
}

// add keeps the moves of a transaction.
func (u *unsureMoves) add(now time.Time, moves []roundMove) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of == nil {
		u.of = map[queue.Ref]*unsureJob{}
	}
	for ref, j := range u.of {
		if now.After(j.until) {
			delete(u.of, ref)
		}
	}
	fresh := map[queue.Ref]*unsureJob{}
	for i := range moves {
		m := &moves[i].move
		ref := m.row.job.Ref
		j := fresh[ref]
		if j == nil {
			j = &unsureJob{until: now.Add(unsureTime)}
			fresh[ref], u.of[ref] = j, j
		}
		op := *m.op
		op.Payload, op.Job = digest(op.Payload), nil
		j.after = m.after
		j.moves = append(j.moves, &unsureMove{op, queue.Result{State: m.after, Effect: m.effect}, m.before.Worker})
	}
}

// find returns the move that an op repeats, if it was made.
func (u *unsureMoves) find(r *jobRow, op *queue.Op, used []*unsureMove) *unsureMove {
	u.mu.Lock()
	defer u.mu.Unlock()
	j := u.of[r.job.Ref]
	if j == nil {
		return nil
	}
	if !j.made && (j.after.Seq != r.job.Seq || !bytes.Equal(encodeState(&j.after), encodeState(&r.job.State))) {
		delete(u.of, r.job.Ref) // it was not made, and will not be: it would find another state
		return nil
	}
	j.made = true
	for _, m := range j.moves {
		if m.is(op) && !slices.Contains(used, m) {
			return m
		}
	}
	return nil
}

// forget drops moves whose repetition has got its answer: the same call may mean another move later.
func (u *unsureMoves) forget(used []*unsureMove) {
	if len(used) == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for ref, j := range u.of {
		j.moves = slices.DeleteFunc(j.moves, func(m *unsureMove) bool { return slices.Contains(used, m) })
		if len(j.moves) == 0 {
			delete(u.of, ref)
		}
	}
}

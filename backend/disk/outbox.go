package disk

import (
	"container/heap"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/internal/jobindex"
	"github.com/podyard/podyard/serverless/queue"
)

// attemptsKept is how many attempts Attempts returns at most.
const attemptsKept = 100

// An outbox contains the unsettled webhooks, ordered by the time at which they are due. Their
// payloads are on disk. Only leased contains pointers, which keeps garbage collection cheap.
type outbox struct {
	list   []entry
	free   []uint32
	heap   []uint32 // indexes of list
	by     map[entryID]uint32
	leased map[queue.Token]lease
	// recording has the leases whose attempts are being written to disk.
	recording map[queue.Token]bool
	token     queue.Token
}

type entryID struct {
	uid uint64
	run uint32
}

type entry struct {
	entryID
	token queue.Token
	since queue.Instant // when it was added, or after a restart its first attempt
	due   queue.Instant // next attempt, or end of the lease
	tries uint32
	held  uint32 // of Index.HoldDelivery
	bytes int64
	pos   int // index in heap; -1: an attempt is being recorded
}

// A lease is the delivery that a token was issued for.
type lease struct {
	n          uint32
	deliveryID string
	entry      stored // as it is on disk
}

func (o *outbox) init(epoch uint32) {
	o.by, o.leased = map[entryID]uint32{}, map[queue.Token]lease{}
	o.recording = map[queue.Token]bool{}
	o.token = queue.Token(epoch) << 32
}

// addDelivery adds an entry with its record, unless it is there. The caller must hold mu.
func (q *jobQueue) addDelivery(s *stored) {
	o, id := &q.outbox, entryID{s.note.Tag, s.state.Run}
	if _, ok := o.by[id]; ok {
		return
	}
	var n uint32
	if k := len(o.free); k > 0 {
		n, o.free = o.free[k-1], o.free[:k-1]
	} else {
		o.list = append(o.list, entry{})
		n = uint32(len(o.list) - 1)
	}
	bytes := s.state.Bytes()
	o.list[n] = entry{entryID: id, since: s.due, due: s.due, tries: s.tries, bytes: bytes, held: q.x.HoldDelivery(s.owner, bytes)}
	o.by[id] = n
	heap.Push(o, n)
}

// remove removes an entry that is not in the heap.
func (o *outbox) remove(n uint32) {
	delete(o.by, o.list[n].entryID)
	o.list[n] = entry{}
	o.free = append(o.free, n)
}

// Len implements heap.Interface.
func (o *outbox) Len() int { return len(o.heap) }

// Less implements heap.Interface.
func (o *outbox) Less(i, j int) bool { return o.list[o.heap[i]].due < o.list[o.heap[j]].due }

// Swap implements heap.Interface.
func (o *outbox) Swap(i, j int) {
	o.heap[i], o.heap[j] = o.heap[j], o.heap[i]
	o.list[o.heap[i]].pos, o.list[o.heap[j]].pos = i, j
}

// Push implements heap.Interface.
func (o *outbox) Push(x any) {
	n := x.(uint32)
	o.list[n].pos = len(o.heap)
	o.heap = append(o.heap, n)
}

// Pop implements heap.Interface.
func (o *outbox) Pop() any {
	k := len(o.heap) - 1
	n := o.heap[k]
	o.heap = o.heap[:k]
	o.list[n].pos = -1
	return n
}

// A pin keeps payloads that a webhook or a dead letter still needs. Only the committer uses it.
type pin struct {
	runs []pinned
	gone bool     // the job is deleted: its payloads are removed after the last run
	void []uint32 // outputs that the job no longer has

	voidInput bool // the job no longer has its input, which a dead letter needs
}

type pinned struct {
	run    uint32
	output uint32
	by     pinner
}

// A pinner is what needs payloads.
type pinner uint8

const (
	forWebhook pinner = iota
	forDead
)

// pin keeps the payloads of a run. It returns false if the pinner has already pinned the run.
func (q *jobQueue) pin(uid uint64, run, output uint32, by pinner) bool {
	p := q.pins[uid]
	if p == nil {
		p = &pin{}
		q.pins[uid] = p
	}
	if slices.ContainsFunc(p.runs, func(r pinned) bool { return r.run == run && r.by == by }) {
		return false
	}
	p.runs = append(p.runs, pinned{run, output, by})
	return true
}

// keep reports whether a webhook or a dead letter still needs an output that its job no longer
// has. If so, unpin removes the output later.
func (q *jobQueue) keep(uid uint64, output uint32) bool {
	p := q.pins[uid]
	if p == nil || !p.needs(output) {
		return false
	}
	p.void = append(p.void, output)
	return true
}

// keepInput is keep for the input, which webhooks do not need.
func (q *jobQueue) keepInput(uid uint64) bool {
	p := q.pins[uid]
	if p == nil || !p.dead() {
		return false
	}
	p.voidInput = true
	return true
}

// dead reports whether there is a dead letter.
func (p *pin) dead() bool {
	return slices.ContainsFunc(p.runs, func(r pinned) bool { return r.by == forDead })
}

func (p *pin) needs(output uint32) bool {
	return slices.ContainsFunc(p.runs, func(r pinned) bool { return r.output == output })
}

// unpin ends the pin of a run and removes payloads that nothing needs any more.
func (q *jobQueue) unpin(b *pebble.Batch, uid uint64, run uint32, by pinner) {
	p := q.pins[uid]
	if p == nil {
		return
	}
	p.runs = slices.DeleteFunc(p.runs, func(r pinned) bool { return r.run == run && r.by == by })
	if len(p.runs) == 0 {
		delete(q.pins, uid)
		if p.gone {
			dropAll(b, uidKey(keyBody, uid))
			return
		}
	}
	if p.voidInput && !p.dead() {
		p.voidInput = false
		drop(b, bodyKey(uid, bodyInput))
	}
	for _, v := range p.void {
		if !p.needs(v) {
			drop(b, outputKey(uid, v))
		}
	}
	p.void = slices.DeleteFunc(p.void, func(v uint32) bool { return !p.needs(v) })
}

// loadLogs marks the jobs that have a log of webhook attempts. job returns the k-th of n jobs,
// in the order of their uids.
func (q *jobQueue) loadLogs(n int, job func(k int) (i uint32, uid uint64)) (err error) {
	from, to := prefixRange([]byte{keyAttempt})
	it, err := q.e.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return unavailable("read", err)
	}
	k := 0
	for it.First(); it.Valid(); it.Next() {
		key := it.Key()
		uid, ok := uidOfKey(key)
		if !ok || len(key) != len(attemptKey(0, 0)) {
			continue
		}
		number := binary.BigEndian.Uint64(key[9:])
		for ; k < n; k++ {
			i, u := job(k)
			if u < uid {
				continue
			}
			switch {
			case u > uid: // the job is gone
			case number == firstAttempt:
				q.x.Mark(i, jobindex.Logged, 0)
			default:
				q.x.Mark(i, jobindex.Logged|jobindex.LoggedMore, 0)
			}
			break
		}
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return unavailable("read", err)
	}
	return nil
}

func (q *jobQueue) loadEntries() error {
	return q.e.loadEach(keyEntry, func(key, value []byte) error {
		var s stored
		if err := s.decode(key, value); err != nil {
			return err
		}
		q.addDelivery(&s)
		q.pinLoaded(&s, forWebhook)
		return nil
	})
}

// pinLoaded pins the payloads of a record that was loaded.
func (q *jobQueue) pinLoaded(s *stored, by pinner) {
	uid := s.note.Tag
	q.pin(uid, s.state.Run, s.note.Output, by)
	p := q.pins[uid]
	i := q.x.Find(s.ref)
	if i == 0 || q.x.Metadata(i).Tag != uid {
		p.gone = true
		return
	}
	if out := q.x.Metadata(i).Output; out != s.note.Output && hasOutput(s.note.Output) && !slices.Contains(p.void, s.note.Output) {
		p.void = append(p.void, s.note.Output)
	}
	if state := q.x.State(i); by == forDead && !state.HasInput() {
		p.voidInput = true
	}
}

// Deliveries implements queue.Outbox. Leases are only in memory. After a new opening
// every leased delivery is due at once, with a token of another epoch. An attempt with an old
// token is not recorded.
func (q *Jobs) Deliveries(_ context.Context, now, until queue.Instant, limit int) ([]queue.Delivery, error) {
	e, err := q.s.engine()
	if err != nil {
		return nil, err
	}
	var ds []queue.Delivery
	for len(ds) < limit {
		n, id, token, ok := e.jobs.lease(now, until)
		if !ok {
			break
		}
		s, d, err := e.delivery(id)
		if err != nil {
			if cause := e.err(); cause != nil {
				return nil, cause
			}
			// The entry is read again when its lease has ended.
			q.s.opts.Logger.Error("a webhook cannot be read", "err", err)
			continue
		}
		d.Token = token
		if e.jobs.handOut(d, lease{n, d.ID, s}) {
			ds = append(ds, d)
		}
	}
	return ds, e.jobs.coverTokens()
}

// lease leases the first entry that is due.
func (q *jobQueue) lease(now, until queue.Instant) (n uint32, id entryID, t queue.Token, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	o := &q.outbox
	if len(o.heap) == 0 || o.list[o.heap[0]].due > now {
		return 0, entryID{}, 0, false
	}
	n = o.heap[0]
	e := &o.list[n]
	delete(o.leased, e.token)
	o.token++
	e.token, e.due = o.token, until
	heap.Fix(o, 0)
	return n, e.entryID, e.token, true
}

// handOut stores the delivery of a lease. It returns false if the lease has been lost.
func (q *jobQueue) handOut(d queue.Delivery, l lease) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.outbox.list[l.n].token != d.Token {
		return false
	}
	q.outbox.leased[d.Token] = l
	return true
}

// delivery reads an entry, and where its webhook goes. If that is damaged, d has a Fault.
func (e *engine) delivery(id entryID) (s stored, d queue.Delivery, err error) {
	key := entryKey(id.uid, id.run)
	v, err := e.mustGet(key)
	if err != nil {
		return s, d, err
	}
	if err := s.decode(key, v); err != nil {
		return s, d, err
	}
	d = queue.Delivery{
		ID: queue.DeliveryID(s.ref, id.run), Tries: int(s.tries),
		Job: queue.Job{Ref: s.ref, Owner: s.owner, Key: s.key, State: s.state},
	}
	err = e.extras(&d.Job, s.note, s.marks)
	switch {
	case errors.Is(err, ErrDamaged):
		e.s.opts.Logger.Error("where a webhook goes is damaged", "endpoint", s.ref.Endpoint, "job", s.ref.ID, "err", err)
		fallthrough
	case err == nil && d.Job.Webhook == "":
		d.Fault = "where the webhook goes is damaged"
		err = nil
	}
	d.Job.Extra, d.Job.Trace = nil, queue.Trace{}
	return s, d, err
}

// LoadDelivery implements queue.Outbox. If payloads are damaged, d has a Fault.
func (q *Jobs) LoadDelivery(_ context.Context, d *queue.Delivery) error {
	e, err := q.s.engine()
	if err != nil {
		return err
	}
	l, ok := e.jobs.leased(d)
	if !ok || d.Fault != "" {
		return leaseError(ok)
	}
	j := queue.Job{Ref: l.entry.ref, Owner: l.entry.owner, Key: l.entry.key, State: l.entry.state}
	err = e.readablePayloads(&j, l.entry.note, l.entry.marks)
	if cause := e.err(); err != nil && cause != nil {
		return cause
	}
	if errors.Is(err, ErrDamaged) {
		j.Output, j.Error, d.Fault, err = nil, "", "the output of the job is damaged", nil
	}
	if _, ok := e.jobs.leased(d); err == nil && !ok { // another caller may have settled it meanwhile, and payloads are gone
		return queue.ErrLeaseLost
	}
	d.Job = j
	return err
}

func leaseError(held bool) error {
	if held {
		return nil
	}
	return queue.ErrLeaseLost
}

// leased returns the lease of a delivery.
func (q *jobQueue) leased(d *queue.Delivery) (l lease, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l, ok = q.outbox.leased[d.Token]
	return l, ok && l.deliveryID == d.ID && l.entry.ref.Endpoint == d.Job.Endpoint
}

// A settlement is the effect of an attempt on an entry.
type settlement struct {
	n   uint32
	id  entryID
	a   *queue.Attempt
	s   stored
	log []byte // the attempt for the log of the job; nil if the job is gone or the attempt was postponed
	// first is set for the first attempt of the log, whose key is known without the log.
	first bool
}

// firstAttempt is the number of the first attempt in the log of a job. All other attempts have
// larger numbers, and so have all attempts logged by version 1 of the format.
const firstAttempt = 0

// Record implements queue.Outbox.
func (q *Jobs) Record(ctx context.Context, as []queue.Attempt) error {
	e, err := q.s.admitJobs(ctx, deletions, 0)
	if err != nil {
		return err
	}
	logs := make([][]byte, len(as))
	for i := range as {
		if logs[i], err = json.Marshal(&as[i]); err != nil {
			return fmt.Errorf("disk: log an attempt: %w", err)
		}
	}
	var list []settlement
	for i := range as {
		if s, ok := e.jobs.settle(&as[i], logs[i]); ok {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return e.commit(func(b *pebble.Batch) {
		for i := range list {
			e.jobs.writeSettlement(b, &list[i])
		}
	}, func() {
		e.jobs.mu.Lock()
		defer e.jobs.mu.Unlock()
		for i := range list {
			e.jobs.publishSettlement(&list[i])
		}
	})
}

// settle removes the entry of an attempt from the heap. ok is false if the lease of the
// attempt was lost.
func (q *jobQueue) settle(a *queue.Attempt, logged []byte) (s settlement, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	o := &q.outbox
	l, ok := o.leased[a.Token]
	if !ok || l.entry.ref.Endpoint != a.Endpoint || l.deliveryID != a.DeliveryID {
		return s, false
	}
	e := &o.list[l.n]
	if e.token != a.Token || e.pos < 0 {
		return s, false
	}
	heap.Remove(o, e.pos)
	delete(o.leased, a.Token)
	o.recording[a.Token] = true
	i := q.x.Find(a.Ref)
	s = settlement{n: l.n, id: e.entryID, a: a, s: l.entry}
	if !a.Postponed && i != 0 && q.x.Metadata(i).Tag == e.uid {
		s.log, s.first = logged, !q.x.Has(i, jobindex.Logged)
		if s.first {
			q.x.Mark(i, jobindex.Logged, 0)
		} else {
			q.x.Mark(i, jobindex.LoggedMore, 0)
		}
	}
	return s, true
}

func (q *jobQueue) writeSettlement(b *pebble.Batch, s *settlement) {
	uid, run := s.id.uid, s.id.run
	if s.log != nil {
		n := uint64(firstAttempt)
		if !s.first {
			q.numbers(b)
			n = q.nextSeq()
		}
		put(b, attemptKey(uid, n), s.log)
	}
	if s.a.Next == 0 {
		drop(b, entryKey(uid, run))
		q.unpin(b, uid, run, forWebhook)
		return
	}
	if !s.a.Postponed {
		s.s.tries++
	}
	s.s.due = s.a.Next
	var room [256]byte
	put(b, entryKey(uid, run), s.s.appendTo(room[:0]))
}

func (q *jobQueue) publishSettlement(s *settlement) {
	o := &q.outbox
	delete(o.recording, s.a.Token)
	if s.a.Next == 0 {
		q.x.ReleaseDelivery(o.list[s.n].held, o.list[s.n].bytes)
		o.remove(s.n)
		return
	}
	e := &o.list[s.n]
	e.token, e.due, e.tries = 0, s.a.Next, s.s.tries
	heap.Push(o, s.n)
}

// NextDelivery implements queue.Outbox.
func (q *Jobs) NextDelivery(context.Context) (queue.Instant, error) {
	e, err := q.s.engine()
	if err != nil {
		return 0, err
	}
	e.jobs.mu.Lock()
	defer e.jobs.mu.Unlock()
	if o := &e.jobs.outbox; len(o.heap) > 0 {
		return o.list[o.heap[0]].due, nil
	}
	return 0, nil
}

// Attempts implements queue.Outbox: it returns the last 100 attempts while the job
// exists.
func (q *Jobs) Attempts(_ context.Context, ref queue.Ref) ([]queue.Attempt, error) {
	e, err := q.s.engine()
	if err != nil {
		return nil, err
	}
	uid, ok := e.jobs.uidOf(ref)
	if !ok {
		return nil, e.missing(keyJob, nil)
	}
	var as []queue.Attempt
	err = each(e.db, uidKey(keyAttempt, uid), func(key, value []byte) error {
		var a queue.Attempt
		if err := json.Unmarshal(value, &a); err != nil {
			return damaged(key)
		}
		if e.jobs.recorded(a.Token) {
			as = append(as, a)
		}
		return nil
	})
	if err != nil {
		return nil, e.given(err)
	}
	return as[max(0, len(as)-attemptsKept):], e.missing(keyAttempt, nil)
}

func (q *jobQueue) uidOf(ref queue.Ref) (uint64, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.x.Find(ref)
	if i == 0 {
		return 0, false
	}
	return q.x.Metadata(i).Tag, true
}

// recorded reports whether an attempt is durable. An attempt that is being recorded may
// already be on disk, but must not be visible yet.
func (q *jobQueue) recorded(t queue.Token) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.outbox.recording[t]
}

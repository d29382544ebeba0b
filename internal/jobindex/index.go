package jobindex

import (
	"cmp"
	"math"
	"slices"

	"github.com/podyard/podyard/serverless/queue"
)

// An Index has the jobs of a queue by id, by endpoint and by deadline. It is not safe for
// concurrent use. A job has a number above 0 while it exists. Create an Index with New.
type Index struct {
	t          records
	names      interner
	terms      termsTable
	lines      []*line
	freeLines  []uint32
	lists      []*jobList // by the interned number of the endpoint; nil: not an endpoint
	wheel      wheel
	undrained  int64 // bytes of chunks that were not read
	chunks     []*chunk
	freeChunks []uint32
	asked      heads       // of the slot that is served
	before     queue.State // of the job that is moved: what Stats.Count reads
	reads      int64
	uniques    uniques
	now        queue.Instant // see Tell
	endedHolds []HoldTag
	holding    map[*order]bool // those with keys that are held

	mostBuckets int // mostBuckets, but for tests

	byName      map[string]*holder
	holders     []*holder // nil: the number is free
	freeHolders []uint32
}

// New returns an empty index.
func New() *Index {
	x := &Index{lines: make([]*line, 1), chunks: make([]*chunk, 1), byName: map[string]*holder{}, mostBuckets: mostBuckets}
	x.t.init()
	x.terms.init()
	x.wheel.init(&x.t)
	return x
}

// Len returns the number of jobs, including hidden ones.
func (x *Index) Len() int { return x.t.count }

// Reads returns how many jobs and keys were looked at so far to find which job is claimed, and
// which ones a listing has. Tests count with it what that costs, which no clock tells them.
func (x *Index) Reads() int64 { return x.reads }

// Find returns the number of a job, hidden or not, or 0.
func (x *Index) Find(ref queue.Ref) uint32 {
	ep, ok := x.names.find(ref.Endpoint)
	if !ok {
		return 0
	}
	d, ok := pack(ref.ID)
	if !ok {
		n, known := x.names.find(string(ref.ID))
		if !known {
			return 0
		}
		d = internedIdent(n)
	}
	return x.t.find(ep, &d)
}

func internedIdent(n uint32) ident {
	return ident{bits: [16]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}}
}

func (d *ident) name() uint32 {
	return uint32(d.bits[0]) | uint32(d.bits[1])<<8 | uint32(d.bits[2])<<16 | uint32(d.bits[3])<<24
}

// Add adds a job, which is hidden until Show. ok is false if the id is in use. priority is at
// most queue.MaxPriority.
func (x *Index) Add(ref queue.Ref, owner, key string, priority uint8) (i uint32, ok bool) {
	d, packed := pack(ref.ID)
	if !packed {
		d = internedIdent(x.names.intern(string(ref.ID)))
	}
	ep := x.names.intern(ref.Endpoint)
	if i, ok = x.t.add(ep, &d); !ok {
		x.releaseNames(ep, &d)
		return 0, false
	}
	r := x.t.at(i)
	r.line = x.join(&x.ensureList(ep).order, owner, key, priority).number
	r.marks = Hidden
	x.wheel.off(i)
	h := x.lines[r.line].holds
	h.jobs++
	h.queued++
	return i, true
}

// releaseNames releases the interned strings of a ref.
func (x *Index) releaseNames(endpoint uint32, d *ident) {
	x.names.release(endpoint)
	if d.form == formName {
		x.names.release(d.name())
	}
}

// Load sets the state of a hidden job without showing it. A store loads jobs in any order,
// and then calls ShowLoaded in the order of Seq.
func (x *Index) Load(i uint32, s *queue.State) { x.begin(x.t.at(i), s) }

// begin stores the first state of a record.
func (x *Index) begin(r *record, s *queue.State) {
	x.reterm(r, s)
	x.store(r, s)
}

// reterm gives a record other terms.
func (x *Index) reterm(r *record, s *queue.State) {
	x.terms.release(r.terms)
	r.terms = x.terms.intern(&s.Terms)
}

// ShowLoaded makes a loaded job visible. It counts a job that has ended in Completed or
// Failed.
func (x *Index) ShowLoaded(i uint32) {
	s := x.State(i)
	x.Show(i, &s)
	x.lists[x.t.at(i).endpoint].order.loaded = true
	if s.Unique.Key != "" {
		x.loadKey(i, &s)
	}
	switch st := &x.lists[x.t.at(i).endpoint].stats; s.Status {
	case queue.Completed:
		st.Completed++
	case queue.Failed, queue.TimedOut:
		st.Failed++
	}
}

// Show makes a job visible with its first state. s.Seq must be greater than the Seq of every
// job of the endpoint that was shown before.
func (x *Index) Show(i uint32, s *queue.State) {
	r := x.t.at(i)
	x.begin(r, s)
	r.marks &^= Hidden
	x.enter(i, r, placeOf(s.Status, s.Delayed))
	l := x.lists[r.endpoint]
	x.enlist(l, i, r, s.Seq, s.Status)
	l.stats.LastSeq = max(l.stats.LastSeq, s.Seq)
	l.stats.Count(nil, s, queue.Put)
	l.weigh(s.Status, s.Flags, s.Priority, 1)
	x.undrained += s.Stream
	if x.t.count == 1 {
		x.wheel.now = max(x.wheel.now, s.Submitted)
	}
	x.wheel.add(i, s.Due())
}

func (x *Index) ensureList(ep uint32) *jobList {
	l := x.listAt(ep)
	if l == nil {
		// The list of an endpoint, and its number, stay for good, because it has the counters.
		x.names.intern(x.names.text(ep))
		for len(x.lists) <= int(ep) {
			x.lists = append(x.lists, nil)
		}
		l = &jobList{order: order{owners: map[uint32]*owner{}, x: x}}
		x.lists[ep] = l
	}
	return l
}

// listAt returns the list of an endpoint, or nil if it has had no job.
func (x *Index) listAt(ep uint32) *jobList {
	if int(ep) >= len(x.lists) {
		return nil
	}
	return x.lists[ep]
}

// listOf is listAt by the name of the endpoint.
func (x *Index) listOf(endpoint string) *jobList {
	ep, ok := x.names.find(endpoint)
	if !ok {
		return nil
	}
	return x.listAt(ep)
}

// Identity returns what identifies a job and where it belongs.
func (x *Index) Identity(i uint32) (ref queue.Ref, owner, key string) {
	r := x.t.at(i)
	k := x.lines[r.line].key
	return x.ref(r), x.names.text(k.owner.name), x.names.text(k.name)
}

// Ref returns the ref of a job.
func (x *Index) Ref(i uint32) queue.Ref { return x.ref(x.t.at(i)) }

func (x *Index) ref(r *record) queue.Ref {
	endpoint := x.names.text(r.endpoint)
	if r.id.form == formName {
		return queue.Ref{Endpoint: endpoint, ID: queue.JobID(x.names.text(r.id.name()))}
	}
	return queue.Ref{Endpoint: endpoint, ID: r.id.unpack()}
}

func (x *Index) ownerOf(i uint32) uint32 { return x.lines[x.t.at(i).line].key.owner.name }

// Job returns a job without its payloads.
func (x *Index) Job(i uint32) (j queue.Job) {
	j.Ref, j.Owner, j.Key = x.Identity(i)
	x.Read(i, &j.State)
	return j
}

// Metadata is what a queue stores with a job for its own use.
type Metadata struct {
	Tag           uint64
	Output, Chunk uint32
}

// Metadata returns the last argument of SetMetadata.
func (x *Index) Metadata(i uint32) Metadata {
	r := x.t.at(i)
	return Metadata{r.tag, r.output, r.chunk}
}

// SetMetadata stores n with the job.
func (x *Index) SetMetadata(i uint32, n Metadata) {
	r := x.t.at(i)
	r.tag, r.output, r.chunk = n.Tag, n.Output, n.Chunk
}

// Has reports whether the job has one of the marks m.
func (x *Index) Has(i uint32, m Marks) bool { return x.t.at(i).marks&m != 0 }

// Mark sets and clears marks.
func (x *Index) Mark(i uint32, set, unset Marks) {
	r := x.t.at(i)
	r.marks = r.marks&^unset | set
}

// Commit makes a move visible. s is the state after State.Apply, and e its effect. With
// queue.NewSeq, s has its new Seq. With queue.Delete, Commit removes the job, and its number may
// be reused.
func (x *Index) Commit(i uint32, s *queue.State, e queue.Effect) {
	r := x.t.at(i)
	l := x.lists[r.endpoint]
	before := &x.before
	before.Status, before.Flags, before.Delayed = r.status, r.flags, r.delayed
	l.stats.Count(before, s, e)
	l.weigh(r.status, r.flags, x.lines[r.line].level, -1)
	x.undrained -= r.stream
	if e&queue.Delete != 0 {
		x.delete(i, r, l)
		return
	}
	l.weigh(s.Status, s.Flags, s.Priority, 1)
	x.undrained += s.Stream
	requeued := e&queue.EvReady != 0 && before.Status != queue.InQueue
	if e&queue.PutInput != 0 {
		requeued = true // its priority may no longer be low
		x.reterm(r, s)
	}
	if e&queue.NewSeq == 0 {
		x.relist(l, r, before.Status, s.Status)
	} else {
		x.unlist(l, r, before.Status)
		x.enlist(l, i, r, s.Seq, s.Status)
		l.stats.LastSeq = max(l.stats.LastSeq, s.Seq)
		requeued = false
	}
	started := r.started
	x.update(i, r, s)
	if e&queue.GiveStart != 0 && l.order.rules.rated {
		x.giveBack(x.lines[r.line].key, started)
	}
	if requeued {
		x.trimRequeued(l)
		l.requeued.push(ref{s.Seq, i})
	}
	if due := s.Due(); due < x.t.timer(i).armed {
		x.wheel.remove(i)
		x.wheel.add(i, due)
	}
}

func (x *Index) delete(i uint32, r *record, l *jobList) {
	x.dropKey(i)
	x.wheel.remove(i)
	x.unlist(l, r, r.status)
	x.leave(i, r)
	x.names.release(r.worker)
	x.names.release(r.lost)
	x.terms.release(r.terms)
	x.uncount(r)
	endpoint, id, line := r.endpoint, r.id, x.lines[r.line]
	x.t.remove(i)
	x.part(line)
	x.releaseNames(endpoint, &id)
}

// Discard removes a job that was never shown.
func (x *Index) Discard(i uint32) {
	x.dropKey(i)
	r := x.t.at(i)
	x.uncount(r)
	endpoint, id, line, terms := r.endpoint, r.id, x.lines[r.line], r.terms
	x.t.remove(i)
	x.part(line)
	x.terms.release(terms)
	x.releaseNames(endpoint, &id)
}

// current reports whether a ref still refers to its record.
func (x *Index) current(r ref) bool {
	return r.rec != 0 && x.t.exists(r.rec) && x.t.at(r.rec).marks&unused == 0 && x.t.at(r.rec).seq == r.seq
}

func (x *Index) isQueued(r ref) bool {
	return x.current(r) && x.t.at(r.rec).status == queue.InQueue
}

// isReady reports whether a job is queued and not delayed. A job that was delayed gets a new Seq
// when it is ready.
func (x *Index) isReady(r ref) bool {
	return x.isQueued(r) && !x.t.at(r.rec).delayed
}

// trimRequeued removes jobs that are no longer ready from the head of the requeued jobs.
func (x *Index) trimRequeued(l *jobList) {
	for len(l.requeued) > 0 && !x.isReady(l.requeued[0]) {
		l.requeued.pop()
	}
}

// maxClockStepBack is how many milliseconds the now of TakeDue may go back before the wheel
// follows. Concurrent calls have slightly different times, and a rewind moves all jobs, which
// takes a while.
const maxClockStepBack = 60_000

// TakeDue returns a job that is due at now and removes it from the wheel; the caller calls
// Rearm unless it deletes the job. It returns 0 if no job is due or the budget is spent. It
// subtracts the number of examined jobs from *budget.
func (x *Index) TakeDue(now queue.Instant, budget *int) uint32 {
	if x.wheel.now-now > maxClockStepBack { // the clock was set back: nothing would be due for that time
		x.wheel.rewind(now)
	}
	for ; *budget > 0 && now >= x.wheel.now; *budget-- {
		i := x.wheel.due(now)
		if i == 0 {
			return 0
		}
		x.wheel.off(i)
		due := x.t.timer(i).armed
		if due <= now {
			*budget--
			return i
		}
		x.wheel.add(i, due)
	}
	return 0
}

// TakeAllDue is TakeDue for as many jobs as the budget allows, and appends them to an empty list.
// They are ordered by the instant at which they are due, and then by Seq, because those that become
// ready together are queued in this order.
func (x *Index) TakeAllDue(now queue.Instant, budget *int, list []uint32) []uint32 {
	for i := x.TakeDue(now, budget); i != 0; i = x.TakeDue(now, budget) {
		list = append(list, i)
	}
	x.t.touch(list)
	sorts := false
	for _, i := range list {
		t := x.terms.at(x.t.at(i).terms)
		sorts = sorts || x.t.at(i).delayed || t.Retry.Attempts > 0 || t.DeadLetter > 0
	}
	if sorts {
		slices.SortFunc(list, func(a, b uint32) int {
			s, t := x.State(a), x.State(b)
			return CompareDue(&s, &t)
		})
	}
	return list
}

// CompareDue compares jobs by the instant at which they are due, and then by Seq.
func CompareDue(s, t *queue.State) int {
	return cmp.Or(cmp.Compare(s.Due(), t.Due()), cmp.Compare(s.Seq, t.Seq))
}

// AdvanceTo moves the wheel of an index that is being filled to now.
func (x *Index) AdvanceTo(now queue.Instant) { x.wheel.now = max(x.wheel.now, now) }

// Rearm puts a job into the wheel at the instant at which its state is due.
func (x *Index) Rearm(i uint32) {
	x.wheel.remove(i)
	s := x.State(i)
	x.wheel.add(i, s.Due())
}

// TickRef returns the Ref of the op with which the deadline of a job is applied: none, unless the
// next attempt of the job may follow. Its delay is made from the id.
func (x *Index) TickRef(i uint32) (ref queue.Ref) {
	if x.terms.at(x.t.at(i).terms).Retry.Attempts > 1 {
		ref = x.Ref(i)
	}
	return ref
}

// NextDue returns a lower bound of the instant at which TakeDue returns a job; 0: never.
func (x *Index) NextDue() queue.Instant { return x.wheel.next() }

// Stats returns the counts of one endpoint under rules at now.
func (x *Index) Stats(endpoint string, rules *queue.Rules, now queue.Instant) queue.Stats {
	l := x.listOf(endpoint)
	if l == nil {
		return queue.Stats{}
	}
	x.Tell(now)
	if x.setRules(&l.order, rules); l.order.rules.rated {
		x.refill(&l.order, now)
	}
	st, free := l.stats, l.order.couldRun()
	st.Ready, st.ReadyLow = int64(free.all), int64(free.all-free.normal)
	st.Blocked = int64(l.order.ready.all - free.all)
	st.Oldest, st.Free = x.oldest(l, free, st.Blocked > 0), l.order.freeAt()
	return st
}

// AddCounts adds to the totals of an endpoint. A store uses it for jobs that were deleted in
// an earlier process.
func (x *Index) AddCounts(endpoint string, completed, failed, retried int64) {
	n := x.names.intern(endpoint)
	l := x.ensureList(n)
	x.names.release(n)
	l.stats.Completed += completed
	l.stats.Failed += failed
	l.stats.Retried += retried
}

// ObserveSeq records that a Seq of the endpoint was assigned, even if the job is gone.
func (x *Index) ObserveSeq(endpoint string, seq uint64) {
	n := x.names.intern(endpoint)
	l := x.ensureList(n)
	x.names.release(n)
	l.stats.LastSeq = max(l.stats.LastSeq, seq)
}

// oldest returns Stats.Oldest. If no job is blocked, it is that of the oldest ready job of normal
// priority: the cursor passes each job once, so the cost is shared by all calls.
func (x *Index) oldest(l *jobList, free counts, blocked bool) (at queue.Instant) {
	switch {
	case free.normal == 0:
		return 0
	case blocked:
		return x.t.at(l.order.oldestFree().rec).queued
	}
	normal := func(r ref) bool {
		return x.isReady(r) && x.t.at(r.rec).flags&queue.LowPriority == 0
	}
	oldest := ref{seq: math.MaxUint64}
	x.trimRequeued(l)
	front := l.requeued
	if len(front) > 0 && normal(front[0]) {
		front = front[:1] // the head of the heap is the oldest
	}
	for _, r := range front {
		if r.seq < oldest.seq && normal(r) {
			oldest = r
		}
	}
	r, ok := l.all.peek(&l.oldest)
	for ok && !normal(r) {
		l.oldest.i++
		r, ok = l.all.peek(&l.oldest)
	}
	if ok && r.seq < oldest.seq {
		oldest = r
	}
	if oldest.rec == 0 {
		return 0
	}
	return x.t.at(oldest.rec).queued
}

// All calls fn with the number of every job, including hidden ones, in no particular order.
func (x *Index) All(fn func(i uint32)) {
	for n, p := range x.t.pages {
		if n == 0 || p.records == nil {
			continue
		}
		for k := range p.records {
			if p.records[k].marks&unused == 0 {
				fn(uint32(n)<<pageBits | uint32(k))
			}
		}
	}
}

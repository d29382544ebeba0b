package jobindex

import (
	"math"

	"github.com/podyard/podyard/serverless"
)

// An Index is the jobs of a queue by their refs, their lines and their deadlines. It is
// for one caller at a time. A job is named by a number, above 0, for as long as it is
// there.
//
// Make one with New.
type Index struct {
	t     records
	names names
	lines []*line // by the endpoint's number; nil where the number is none's
	wheel wheel
}

// New returns an empty index.
func New() *Index {
	x := &Index{}
	x.t.init()
	x.wheel.init(&x.t)
	return x
}

// Len is how many jobs there are, hidden ones too.
func (x *Index) Len() int { return x.t.count }

// Find is the job with this ref, hidden or not, or 0.
func (x *Index) Find(ref serverless.Ref) uint32 {
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
		d = named(n)
	}
	return x.t.find(ep, &d)
}

func named(n uint32) ident {
	return ident{bits: [16]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}}
}

func (d *ident) name() uint32 {
	return uint32(d.bits[0]) | uint32(d.bits[1])<<8 | uint32(d.bits[2])<<16 | uint32(d.bits[3])<<24
}

// Add makes room for a job, hidden until Show; ok is false if there is one of this name.
func (x *Index) Add(ref serverless.Ref, owner string) (i uint32, ok bool) {
	d, packed := pack(ref.ID)
	if !packed {
		d = named(x.names.hold(string(ref.ID)))
	}
	ep := x.names.hold(ref.Endpoint)
	if i, ok = x.t.add(ep, &d); !ok {
		x.unname(ep, &d)
		return 0, false
	}
	r := x.t.at(i)
	r.owner = x.names.hold(owner)
	r.marks = Hidden
	r.prev, r.next = i, i
	return i, true
}

// unname drops the names of a ref.
func (x *Index) unname(endpoint uint32, d *ident) {
	x.names.drop(endpoint)
	if d.form == formName {
		x.names.drop(d.name())
	}
}

// Load gives a hidden job a state without showing it: what is read in any order is shown in
// the order of Seq, by ShowLoaded.
func (x *Index) Load(i uint32, s *serverless.State) { x.store(x.t.at(i), s) }

// ShowLoaded makes a loaded job visible. One that has ended counts as one that did.
func (x *Index) ShowLoaded(i uint32) {
	s := x.State(i)
	x.Show(i, &s)
	switch st := &x.lines[x.t.at(i).endpoint].stats; s.Status {
	case serverless.Completed:
		st.Completed++
	case serverless.Failed, serverless.TimedOut:
		st.Failed++
	}
}

// Show makes a job visible, with the state that it begins with. Its Seq is above that of
// every job of the endpoint that was shown before.
func (x *Index) Show(i uint32, s *serverless.State) {
	r := x.t.at(i)
	x.store(r, s)
	r.marks &^= Hidden
	l := x.line(r.endpoint)
	l.append(s.Seq, i)
	l.stats.LastSeq = max(l.stats.LastSeq, s.Seq)
	l.stats.Note(nil, s, serverless.Put)
	if x.t.count == 1 {
		x.wheel.now = max(x.wheel.now, s.Submitted)
	}
	r.armed = s.Due()
	x.wheel.add(i)
}

func (x *Index) line(ep uint32) *line {
	l := x.lineOf(ep)
	if l == nil {
		// An endpoint's line, and its number, stay: its counters are kept.
		x.names.hold(x.names.text(ep))
		for len(x.lines) <= int(ep) {
			x.lines = append(x.lines, nil)
		}
		l = &line{}
		x.lines[ep] = l
	}
	return l
}

// lineOf is the line of an endpoint, nil if it has had no job.
func (x *Index) lineOf(ep uint32) *line {
	if int(ep) >= len(x.lines) {
		return nil
	}
	return x.lines[ep]
}

// known is the same by name.
func (x *Index) known(endpoint string) *line {
	ep, ok := x.names.find(endpoint)
	if !ok {
		return nil
	}
	return x.lineOf(ep)
}

// Ref is the job's name.
func (x *Index) Ref(i uint32) serverless.Ref {
	r := x.t.at(i)
	endpoint := x.names.text(r.endpoint)
	if r.id.form == formName {
		return serverless.Ref{Endpoint: endpoint, ID: serverless.JobID(x.names.text(r.id.name()))}
	}
	return serverless.Ref{Endpoint: endpoint, ID: r.id.unpack()}
}

// Owner is the user whose job it is.
func (x *Index) Owner(i uint32) string { return x.names.text(x.t.at(i).owner) }

// State is the job as the rules see it.
func (x *Index) State(i uint32) serverless.State {
	r := x.t.at(i)
	return serverless.State{
		Status: r.status, Flags: r.flags, Reason: r.reason, Deliveries: r.deliveries, Restarts: r.restarts, Run: r.run,
		Seq: r.seq, Token: r.token, Worker: serverless.WorkerID(x.names.text(r.worker)), Lost: serverless.WorkerID(x.names.text(r.lost)),
		Submitted: r.submitted, Queued: r.queued, Started: r.started, Finished: r.finished,
		LeaseUntil: r.leaseUntil, RunUntil: r.runUntil, Expires: r.expires,
		ExecTimeout: r.execTimeout, Retain: r.retain, Chunks: r.chunks, Drained: r.drained, Stream: r.stream,
	}
}

// store is the inverse of State.
func (x *Index) store(r *record, s *serverless.State) {
	r.status, r.flags, r.reason, r.deliveries, r.restarts, r.run = s.Status, s.Flags, s.Reason, s.Deliveries, s.Restarts, s.Run
	r.seq, r.token = s.Seq, s.Token
	x.names.swap(&r.worker, string(s.Worker))
	x.names.swap(&r.lost, string(s.Lost))
	r.submitted, r.queued, r.started, r.finished = s.Submitted, s.Queued, s.Started, s.Finished
	r.leaseUntil, r.runUntil, r.expires = s.LeaseUntil, s.RunUntil, s.Expires
	r.execTimeout, r.retain, r.chunks, r.drained, r.stream = s.ExecTimeout, s.Retain, s.Chunks, s.Drained, s.Stream
}

// A Note is what a queue keeps of a job for itself.
type Note struct {
	Tag           uint64
	Output, Chunk uint32
}

// Note is what was last given to SetNote.
func (x *Index) Note(i uint32) Note {
	r := x.t.at(i)
	return Note{r.tag, r.output, r.chunk}
}

// SetNote keeps n with the job.
func (x *Index) SetNote(i uint32, n Note) {
	r := x.t.at(i)
	r.tag, r.output, r.chunk = n.Tag, n.Output, n.Chunk
}

// Has reports whether the job has one of the marks.
func (x *Index) Has(i uint32, m Marks) bool { return x.t.at(i).marks&m != 0 }

// Mark sets and clears marks.
func (x *Index) Mark(i uint32, set, unset Marks) {
	r := x.t.at(i)
	r.marks = r.marks&^unset | set
}

// Move makes a move visible that Apply decided: after is what it left of before, e its
// effect. With serverless.NewSeq after has its new Seq. With serverless.Delete the job is
// gone, and its number free.
func (x *Index) Move(i uint32, before, after *serverless.State, e serverless.Effect) {
	r := x.t.at(i)
	l := x.lines[r.endpoint]
	l.stats.Note(before, after, e)
	if e&serverless.Delete != 0 {
		x.delete(i)
		return
	}
	ready := e&serverless.EvReady != 0
	if e&serverless.NewSeq != 0 {
		l.forget(r.seq)
		l.append(after.Seq, i)
		l.stats.LastSeq = max(l.stats.LastSeq, after.Seq)
		ready = false
	}
	x.store(r, after)
	if ready {
		l.putBack(ref{after.Seq, i})
	}
	if due := after.Due(); due < r.armed {
		x.wheel.remove(i)
		r.armed = due
		x.wheel.add(i)
	}
}

// PutBack puts a queued job in front of its line, where NextReady found it.
func (x *Index) PutBack(i uint32) {
	r := x.t.at(i)
	x.lines[r.endpoint].putBack(ref{r.seq, i})
}

func (x *Index) delete(i uint32) {
	r := x.t.at(i)
	l := x.lines[r.endpoint]
	x.wheel.remove(i)
	seq, sparse := r.seq, l.forget(r.seq)
	for _, n := range [...]uint32{r.owner, r.worker, r.lost} {
		x.names.drop(n)
	}
	endpoint, id := r.endpoint, r.id
	x.t.remove(i)
	x.unname(endpoint, &id)
	if sparse {
		l.thin(seq, x.current)
	}
}

// Drop forgets a job that was never shown.
func (x *Index) Drop(i uint32) {
	r := x.t.at(i)
	endpoint, id, owner := r.endpoint, r.id, r.owner
	x.t.remove(i)
	x.names.drop(owner)
	x.unname(endpoint, &id)
}

// current reports whether a ref still means its record.
func (x *Index) current(r ref) bool {
	return r.rec != 0 && x.t.exists(r.rec) && x.t.at(r.rec).marks&unused == 0 && x.t.at(r.rec).seq == r.seq
}

func (x *Index) isQueued(r ref) bool {
	return x.current(r) && x.t.at(r.rec).status == serverless.InQueue
}

// NextReady takes the oldest queued job out of the line of an endpoint, busy ones too: who
// does not claim it puts it back. It is 0 when there is none.
func (x *Index) NextReady(endpoint string) uint32 {
	l := x.known(endpoint)
	if l == nil {
		return 0
	}
	x.trimFront(l)
	r, ok := l.peek(&l.ready)
	for ok && !x.isQueued(r) {
		l.ready.i++
		r, ok = l.peek(&l.ready)
	}
	// After a restart the line may have what is older than a job in front of it.
	if len(l.front) > 0 && (!ok || l.front[0].seq <= r.seq) {
		return l.popFront().rec
	}
	if !ok {
		return 0
	}
	l.ready.i++
	return r.rec
}

// trimFront drops what is no longer queued from the head of those in front.
func (x *Index) trimFront(l *line) {
	for len(l.front) > 0 && !x.isQueued(l.front[0]) {
		l.popFront()
	}
}

// LostBy reports whether the worker is the one that lost the job.
func (x *Index) LostBy(i uint32, w serverless.WorkerID) bool {
	r := x.t.at(i)
	return r.lost != 0 && x.names.text(r.lost) == string(w)
}

// backwards is how many milliseconds the time of Due may go back before the wheel follows:
// calls that are under way at once have not quite the same, and to put all jobs anew takes
// a while.
const backwards = 60_000

// Due takes out a job that has something due at now: the caller gives it back with Rearm
// unless it deletes it. It looks at no more than *budget jobs, which it counts down, and is
// 0 when there is none or the budget is spent.
func (x *Index) Due(now serverless.Instant, budget *int) uint32 {
	if x.wheel.now-now > backwards { // the clock was put back: nothing would be due until then
		x.wheel.rewind(now)
	}
	for ; *budget > 0 && now >= x.wheel.now; *budget-- {
		i := x.wheel.due(now)
		if i == 0 {
			return 0
		}
		r := x.t.at(i)
		r.prev, r.next = i, i // so that it can be removed while it is out
		if r.armed <= now {
			*budget--
			return i
		}
		x.wheel.add(i)
	}
	return 0
}

// Begin tells an index that is being filled that this instant has been reached: what is
// due is sorted from there on.
func (x *Index) Begin(now serverless.Instant) { x.wheel.now = max(x.wheel.now, now) }

// Rearm puts a job where its state is due.
func (x *Index) Rearm(i uint32) {
	x.wheel.remove(i)
	s := x.State(i)
	x.t.at(i).armed = s.Due()
	x.wheel.add(i)
}

// Next is a lower bound of the instant at which Due has something, 0 for never.
func (x *Index) Next() serverless.Instant { return x.wheel.next() }

// Queued calls fn with the queued jobs of an endpoint whose Seq is above after and not
// above upTo, in order, looks at no more than limit, and says where to go on (0: done). fn
// moves nothing, and reports whether to go on.
func (x *Index) Queued(endpoint, owner string, after, upTo uint64, limit int, fn func(i uint32) bool) (next uint64) {
	l := x.known(endpoint)
	who, ok := x.names.find(owner)
	if l == nil || !ok {
		return 0
	}
	next = after
	c := l.after(after)
	for range limit {
		r, ok := l.peek(&c)
		if !ok || r.seq > upTo {
			return 0
		}
		if x.isQueued(r) && (owner == "" || x.t.at(r.rec).owner == who) && !fn(r.rec) {
			return next
		}
		c.i++
		next = r.seq
	}
	return next
}

// Newest calls fn with jobs of an endpoint with a Seq below before, newest first, looks at
// about limit of them, and says where to go on (0: done).
func (x *Index) Newest(endpoint, owner string, before uint64, limit int, fn func(i uint32)) (next uint64) {
	l := x.known(endpoint)
	who, ok := x.names.find(owner)
	if l == nil || !ok {
		return 0
	}
	for k := l.where(before); k >= 0 && k < len(l.pieces); k-- {
		p := l.pieces[k]
		for i := p.n - 1; i >= 0; i-- {
			r := p.refs[i]
			if r.seq >= before || !x.current(r) {
				continue
			}
			if limit == 0 {
				return before
			}
			limit--
			before = r.seq
			if owner == "" || x.t.at(r.rec).owner == who {
				fn(r.rec)
			}
		}
	}
	return 0
}

// Stats counts for one endpoint.
func (x *Index) Stats(endpoint string) serverless.Stats {
	l := x.known(endpoint)
	if l == nil {
		return serverless.Stats{}
	}
	st := l.stats
	st.Oldest = x.oldest(l)
	return st
}

// Count adds to what was ever counted of an endpoint: what a queue remembers of jobs that
// are gone.
func (x *Index) Count(endpoint string, completed, failed, retried int64) {
	n := x.names.hold(endpoint)
	l := x.line(n)
	x.names.drop(n)
	l.stats.Completed += completed
	l.stats.Failed += failed
	l.stats.Retried += retried
}

// Saw notes that a Seq of the endpoint was given, whatever became of the job.
func (x *Index) Saw(endpoint string, seq uint64) {
	n := x.names.hold(endpoint)
	l := x.line(n)
	x.names.drop(n)
	l.stats.LastSeq = max(l.stats.LastSeq, seq)
}

// oldest is when the oldest queued job of normal priority was queued. The cursor moves
// over each job once, so the cost is shared by all calls.
func (x *Index) oldest(l *line) (at serverless.Instant) {
	if l.stats.Queued == l.stats.QueuedLow {
		return 0
	}
	normal := func(r ref) bool {
		return x.isQueued(r) && x.t.at(r.rec).flags&serverless.LowPriority == 0
	}
	oldest := ref{seq: math.MaxUint64}
	x.trimFront(l)
	front := l.front
	if len(front) > 0 && normal(front[0]) {
		front = front[:1] // the head of the heap is the oldest of what may be many
	}
	for _, r := range front {
		if r.seq < oldest.seq && normal(r) {
			oldest = r
		}
	}
	r, ok := l.peek(&l.oldest)
	for ok && !normal(r) {
		l.oldest.i++
		r, ok = l.peek(&l.oldest)
	}
	if ok && r.seq < oldest.seq {
		oldest = r
	}
	if oldest.rec == 0 {
		return 0
	}
	return x.t.at(oldest.rec).queued
}

// All calls fn with the number of every job, hidden ones too, in no order.
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

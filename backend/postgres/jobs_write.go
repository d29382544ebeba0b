package postgres

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/podyard/podyard/serverless/queue"
)

// A move is an op that was applied to a job. before and after are the states of the job.
type move struct {
	now           queue.Instant
	row           *jobRow
	before, after queue.State
	effect        queue.Effect
	op            *queue.Op
	extra         []byte // of queue.PutInput: encrypted
}

// A readyRow is what the row of a job among those that can be claimed depends on.
type readyRow struct {
	seq             uint64
	queued, expires queue.Instant
	lost            queue.WorkerID // State.Barred
	low             bool
}

// readyOf returns the row of a job in this state. It is zero if the job cannot be claimed.
func readyOf(s *queue.State) readyRow {
	if s.Status != queue.InQueue || s.Delayed {
		return readyRow{}
	}
	return readyRow{s.Seq, s.Queued, s.Expires, s.Barred(), s.Flags&queue.LowPriority != 0}
}

// writes are the changes of moves of different jobs, as columns.
type writes struct {
	epoch int64
	slot  int64 // of counters

	keyHolds keyHolds
	given    struct { // starts that were none
		ep, owner, key [][]byte
		started        []int64
	}
	update struct {
		ep, id, state, known         [][]byte
		seq, armed, gone, knownArmed []int64
		status                       []int16
		place                        []pgtype.TID
	}
	gone struct {
		ep, id [][]byte
		num    []int64
	}
	unready, ready struct {
		line
		seq, queued, expires []int64
		low                  []bool
		lost                 [][]byte
		place                []pgtype.TID // of rows that are removed
	}
	stopped, running struct {
		ep, owner, key, id [][]byte
		num, seq           []int64
		counted            []int16
	}
	alive      struct{ ep, id [][]byte } // jobs whose dead letters go
	dropOutput []int64
	output     struct {
		num           []int64
		output, error [][]byte
		again         bool // there may be others before them
	}
	dropChunks struct{ num, below []int64 }
	chunk      struct {
		num, n []int64
		data   [][]byte
	}
	try struct {
		num  []int64
		n    []int16
		data [][]byte
	}
	dropInput struct{ num []int64 }
	dropSent  struct {
		ep  [][]byte
		num []int64
	}
	outbox, dead copies
	inputs       inputs
	keys         goneKeys
}

// line are the columns that name the lines of jobs.
type line struct {
	ep, owner, key [][]byte
	prio           []int16
}

func (l *line) add(j *queue.Job) {
	l.ep, l.owner, l.key = appendText(l.ep, j.Endpoint), appendText(l.owner, j.Owner), appendText(l.key, j.Key)
	l.prio = append(l.prio, int16(j.Priority))
}

func (l *line) grow(n int) {
	growAll(n, &l.ep, &l.owner, &l.key)
	growAll(n, &l.prio)
}

// appendText adds a text to a column, in which the same one often comes again and again.
func appendText(column [][]byte, text string) [][]byte {
	if n := len(column); n > 0 && string(column[n-1]) == text {
		return append(column, column[n-1])
	}
	return append(column, []byte(text))
}

// growAll makes room for n more rows in columns.
func growAll[T any](n int, columns ...*[]T) {
	for _, c := range columns {
		*c = slices.Grow(*c, n)
	}
}

// copies are the columns of copies of jobs.
type copies struct {
	ep, id, owner, key, state, did [][]byte
	num, seq, at, bytes            []int64
}

func (c *copies) add(r *jobRow, s *queue.State, at queue.Instant) {
	j := &r.job
	c.ep, c.id, c.owner, c.key = append(c.ep, []byte(j.Endpoint)), append(c.id, []byte(j.ID)), append(c.owner, []byte(j.Owner)), append(c.key, []byte(j.Key))
	c.state, c.did = append(c.state, encodeState(s)), append(c.did, []byte(queue.DeliveryID(j.Ref, s.Run)))
	c.num, c.seq, c.at = append(c.num, r.num), append(c.seq, int64(s.Seq)), append(c.at, int64(at))
	c.bytes = append(c.bytes, s.Bytes())
}

// grow makes room for n more jobs that change.
func (w *writes) grow(n int) {
	u := &w.update
	growAll(n, &u.ep, &u.id, &u.state, &u.known)
	growAll(n, &u.seq, &u.armed, &u.gone, &u.knownArmed)
	growAll(n, &u.status)
	growAll(n, &u.place)
}

// add records a move, but for the row of the job itself: see put.
func (w *writes) add(m *move) {
	w.place(m)
	if m.effect&queue.Delete != 0 {
		w.gone.ep, w.gone.id = append(w.gone.ep, []byte(m.row.job.Endpoint)), append(w.gone.id, []byte(m.row.job.ID))
		w.gone.num = append(w.gone.num, m.row.num)
		w.keys.add(m)
		return
	}
	w.payloads(m)
	if m.effect&queue.PutOutbox != 0 {
		w.outbox.add(m.row, &m.after, m.now)
	}
	if m.effect&queue.DropDead != 0 {
		w.alive.ep, w.alive.id = append(w.alive.ep, []byte(m.row.job.Endpoint)), append(w.alive.id, []byte(m.row.job.ID))
	}
	if m.effect&queue.PutDead != 0 {
		w.dead.add(m.row, &m.after, m.after.Kept())
	}
}

func (w *writes) put(r *jobRow, s *queue.State) {
	u := &w.update
	u.ep, u.id, u.state = appendText(u.ep, r.job.Endpoint), append(u.id, []byte(r.job.ID)), append(u.state, encodeState(s))
	u.seq, u.armed, u.status = append(u.seq, int64(s.Seq)), append(u.armed, int64(r.armed)), append(u.status, int16(s.Status))
	u.gone = append(u.gone, int64(s.GoneAt()))
	u.known, u.knownArmed = append(u.known, r.known.state), append(u.knownArmed, int64(r.known.armed))
	u.place = append(u.place, r.place)
}

// place moves a job between those that can be claimed and those that run.
func (w *writes) place(m *move) {
	j := &m.row.job
	was, is := readyOf(&m.before), readyOf(&m.after)
	ran, runs := m.before.Status == queue.InProgress, m.after.Status == queue.InProgress
	if m.effect&queue.Delete != 0 {
		is, runs = readyRow{}, false
	}
	if was != is && was != (readyRow{}) {
		w.unready.add(j)
		w.unready.seq, w.unready.place = append(w.unready.seq, int64(was.seq)), append(w.unready.place, m.row.readyPlace)
	}
	if was != is && is != (readyRow{}) {
		w.ready.add(j)
		w.ready.seq, w.ready.queued = append(w.ready.seq, int64(is.seq)), append(w.ready.queued, int64(is.queued))
		w.ready.expires, w.ready.lost = append(w.ready.expires, int64(is.expires)), append(w.ready.lost, []byte(is.lost))
		w.ready.low = append(w.ready.low, m.after.Flags&queue.LowPriority != 0)
	}
	if m.effect&queue.GiveStart != 0 {
		w.given.ep, w.given.owner, w.given.key = append(w.given.ep, []byte(j.Endpoint)), append(w.given.owner, []byte(j.Owner)), append(w.given.key, []byte(j.Key))
		w.given.started = append(w.given.started, int64(m.before.Started))
	}
	if m.effect&queue.HoldKey != 0 {
		w.keyHolds.add(m)
	}
	if ran == runs {
		return
	}
	r := &w.running
	if ran {
		r = &w.stopped
	}
	r.ep, r.owner, r.key = appendText(r.ep, j.Endpoint), appendText(r.owner, j.Owner), appendText(r.key, j.Key)
	r.id, r.num, r.seq = append(r.id, []byte(j.ID)), append(r.num, m.row.num), append(r.seq, int64(m.after.Seq))
	r.counted = append(r.counted, m.row.counting(m.op))
}

func (w *writes) payloads(m *move) {
	num, eff := m.row.num, m.effect
	if eff&queue.DropOutput != 0 {
		w.dropOutput = append(w.dropOutput, num)
		if m.before.Chunks > m.before.Drained {
			w.dropChunks.num, w.dropChunks.below = append(w.dropChunks.num, num), append(w.dropChunks.below, int64(m.before.Chunks))
		}
	}
	if eff&queue.DropChunks != 0 {
		w.dropChunks.num, w.dropChunks.below = append(w.dropChunks.num, num), append(w.dropChunks.below, int64(m.after.Drained))
	}
	if eff&queue.DropInput != 0 {
		w.dropInput.num = append(w.dropInput.num, num)
		if m.after.Flags&queue.HasWebhook != 0 {
			w.dropSent.ep, w.dropSent.num = append(w.dropSent.ep, []byte(m.row.job.Endpoint)), append(w.dropSent.num, num)
		}
	}
	if eff&queue.PutInput != 0 {
		w.inputs.add(m)
	}
	if eff&queue.PutOutput != 0 {
		w.output.num = append(w.output.num, num)
		w.output.output, w.output.error = append(w.output.output, m.op.Payload), append(w.output.error, orNull(m.op.Error))
		w.output.again = w.output.again || !m.endsKnown()
	}
	if eff&queue.AddChunk != 0 {
		w.chunk.num, w.chunk.n = append(w.chunk.num, num), append(w.chunk.n, int64(m.after.Chunks)-1)
		w.chunk.data = append(w.chunk.data, notNull(m.op.Payload))
	}
	if eff&queue.PutAttempt != 0 {
		w.putTry(num, int16(m.before.Attempt), m.before.EndedAttempt(m.now, &m.after, m.op))
	}
	if eff&queue.PutLease != 0 {
		w.putTry(num, firstLease+int16(m.after.LeasePlace()), m.before.EndedLease(m.now, &m.after, m.op))
	}
}

// putTry keeps an attempt or a lease that has ended.
func (w *writes) putTry(num int64, n int16, v any) {
	data, _ := json.Marshal(v) //nolint:errchkjson // texts and numbers
	w.try.num, w.try.n, w.try.data = append(w.try.num, num), append(w.try.n, n), append(w.try.data, data)
}

func notNull(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// first adds the statements to a batch that come before those of main.
func (w *writes) first(b *pgx.Batch) {
	w.queueDeletions(b)
	if len(w.ready.ep) > 0 { // a row may be replaced
		r := &w.unready
		queueIf(b, r.ep, sqlUnready, r.ep, r.owner, r.prio, r.key, r.seq, r.place)
	}
	w.keys.queue(b)
	w.inputs.queue(b)
	queueIf(b, w.dropOutput, sqlDropOutputs, w.dropOutput)
	queueIf(b, w.dropInput.num, sqlDropInputs, w.dropInput.num)
	queueIf(b, w.dropSent.num, sqlDropSent, w.dropSent.ep, w.dropSent.num)
	queueIf(b, w.chunk.num, sqlAddChunks, w.chunk.num, w.chunk.n, w.chunk.data)
}

// main returns the statements that most moves have. They change different tables.
func (w *writes) main() (list merged) {
	u := &w.update
	addIf(&list, u.ep, sqlUpdate, u.ep, u.id, u.seq, u.armed, u.gone, u.status, u.state, u.known, u.knownArmed, u.place)
	if r := &w.unready; len(w.ready.ep) == 0 {
		addIf(&list, r.ep, sqlUnready, r.ep, r.owner, r.prio, r.key, r.seq, r.place)
	}
	r := &w.ready
	addIf(&list, r.ep, sqlReady, r.ep, r.owner, r.prio, r.key, r.seq, r.queued, r.expires, r.low, r.lost)
	s := &w.stopped
	addIf(&list, s.ep, sqlStopped, s.ep, s.owner, s.key, s.num)
	s = &w.running
	addIf(&list, s.ep, sqlRunning, s.ep, s.owner, s.key, s.num, s.seq, s.id, s.counted, w.epoch)
	put := sqlPutFirstOutputs
	if w.output.again {
		put = sqlPutOutputs
	}
	addIf(&list, w.output.num, put, w.output.num, w.output.output, w.output.error)
	return list
}

// last adds the statements to a batch that come after those of main.
func (w *writes) last(b *pgx.Batch) {
	// Rows that another server may change too are changed when those of their jobs are locked.
	queueIf(b, w.dropChunks.num, sqlDropChunks, w.dropChunks.num, w.dropChunks.below)
	queueIf(b, w.try.num, sqlPutTries, w.try.num, w.try.n, w.try.data)
	queueIf(b, w.given.ep, sqlGiveStarts, w.given.ep, w.given.owner, w.given.key, w.given.started)
	w.keyHolds.queue(b)
	c := &w.outbox
	queueIf(b, c.ep, sqlPutOutbox, c.ep, c.did, c.at, c.num, c.seq, c.id, c.owner, c.key, c.state, c.bytes, w.slot)
	w.queueDead(b)
}

func (w *writes) queueDead(b *pgx.Batch) {
	queueIf(b, w.alive.ep, sqlDropDead, w.alive.ep, w.alive.id, w.slot)
	c := &w.dead
	if len(c.ep) == 0 {
		return
	}
	b.Queue(sqlDropDead, c.ep, c.id, w.slot)
	b.Queue(sqlPutDead, c.ep, c.id, c.at, c.num, c.seq, c.owner, c.key, c.state, c.bytes, w.slot)
	owners := map[[2]string]bool{}
	for i := range c.ep {
		owners[[2]string{string(c.ep[i]), string(c.owner[i])}] = true
	}
	var ep, owner [][]byte
	for o := range owners {
		ep, owner = append(ep, []byte(o[0])), append(owner, []byte(o[1]))
	}
	b.Queue(sqlTrimDead, ep, owner, queue.MaxDeadLetters, w.slot)
}

// firstLease is the number of the first place for a lease in job_tries. The numbers of attempts are
// below it, so that servers of a version without leases, which read the first rows, find the attempts.
const firstLease = 1024

// payloadTables have rows of jobs by num.
func payloadTables() [5]string {
	return [...]string{"job_bodies", "job_outputs", "job_chunks", "job_tries", "job_sent"}
}

func (w *writes) queueDeletions(b *pgx.Batch) {
	if len(w.gone.ep) == 0 {
		return
	}
	b.Queue(sqlDelete, w.gone.ep, w.gone.id)
	for _, table := range payloadTables() {
		b.Queue(`DELETE FROM podyard.`+table+` WHERE num = ANY($1::int8[])`, w.gone.num)
	}
}

// queueIf adds a statement if its first column has rows.
func queueIf[T any](b *pgx.Batch, column []T, sql string, args ...any) {
	if len(column) > 0 {
		b.Queue(sql, args...)
	}
}

// A count is what a transaction changes in the counters of an endpoint.
type count struct {
	queue.Stats
	delayedLow int64
}

type counts map[string]*count

func (c counts) of(endpoint string) *count {
	n := c[endpoint]
	if n == nil {
		n = &count{}
		c[endpoint] = n
	}
	return n
}

// move counts a move. before is nil for a new job.
func (n *count) move(before, after *queue.State, e queue.Effect) {
	n.Count(before, after, e)
	n.LastSeq = max(n.LastSeq, after.Seq)
	if before != nil && isDelayedLow(before) {
		n.delayedLow--
	}
	if e&queue.Delete == 0 && isDelayedLow(after) {
		n.delayedLow++
	}
}

// add counts a new job.
func (n *count) add(s *queue.State, seq uint64) {
	low, delayed := bit(s.Flags&queue.LowPriority != 0), bit(readyOf(s) == readyRow{})
	n.Queued++
	n.QueuedLow += low
	n.Delayed += delayed
	n.delayedLow += low * delayed
	n.LastSeq = max(n.LastSeq, seq)
}

func isDelayedLow(s *queue.State) bool {
	return s.Status == queue.InQueue && s.Delayed && s.Flags&queue.LowPriority != 0
}

// add adds the statement of the counters to others. It changes them in one order.
func (c counts) add(list *merged, slot int64) {
	var ep [][]byte
	var cols [9][]int64
	for _, endpoint := range slices.Sorted(maps.Keys(c)) {
		n := c[endpoint]
		values := [9]int64{n.Queued, n.QueuedLow, n.Delayed, n.delayedLow, n.Running, n.Completed, n.Failed, n.Retried, int64(n.LastSeq)}
		if values == ([9]int64{}) {
			continue
		}
		ep = append(ep, []byte(endpoint))
		for i := range cols {
			cols[i] = append(cols[i], values[i])
		}
	}
	addIf(list, ep, sqlCount, ep, slot, cols[0], cols[1], cols[2], cols[3], cols[4], cols[5], cols[6], cols[7], cols[8])
}

// armings are jobs to look at from an instant on.
type armings []arming

type arming struct {
	at       queue.Instant
	endpoint string
	seq      uint64
	row      *jobRow
}

// dueGroup is how many jobs have one row at most, and dueFar how far ahead one is: a job is looked
// at and armed again then, so that the row of one that ended early does not stay for long. The database
// compresses rows of more than 2 kB.
const (
	dueGroup = 224
	dueFar   = queue.Instant(3_600_000)
)

// group gives those of one endpoint that are due at about the same time the instant of the first
// one, so that they have one row. The nearer the instant, the less early it is.
func (a armings) group(now queue.Instant) {
	for i := range a {
		a[i].at = min(a[i].at, now+dueFar)
	}
	slices.SortStableFunc(a, func(x, y arming) int {
		return cmp.Or(cmp.Compare(x.endpoint, y.endpoint), cmp.Compare(x.at, y.at))
	})
	first, n := 0, 0
	for i := range a {
		f := &a[first]
		if n++; a[i].endpoint != f.endpoint || n > dueGroup || a[i].at-f.at > max(f.at-now, 0)/64 {
			first, n = i, 1
		}
		a[i].at = a[first].at
	}
}

func (a armings) add(list *merged) {
	at, ep, seq := make([]int64, len(a)), make([][]byte, 0, len(a)), make([]int64, len(a))
	for i := range a {
		at[i], ep, seq[i] = int64(a[i].at), appendText(ep, a[i].endpoint), int64(a[i].seq)
	}
	addIf(list, at, sqlArm, at, ep, seq)
}

package postgres

import (
	"math"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/podyard/podyard/serverless/queue"
)

// An order has the first lines of a locked endpoint, and is the queue.Heads of a claim. What it has not
// read is bounded: no owner that is not here has a turn up to ownersTo, and no line of a level that is not
// here one up to turnsTo, nor a job up to headsTo. Where that does not tell which job is next, want says what
// must be read first.
type order struct {
	endpoint string
	sizes    *sizes
	rules    queue.Rules
	locked   bool     // it has a row
	first    lineName // of its first job
	orderRow
	was             orderRow // what the row says
	perKey, perUser int      // of the last claim with limits
	running         int      // read only if there is a limit for it
	floor           int64

	owners   []*orderOwner
	ownersTo int64
	names    map[string]*orderOwner

	orderRates
	newsTo   int64
	newsLeft bool
	freed    [][2]string // owners and keys of which a job has ended
	depth    int         // how many jobs of a line are read at first
	step     int         // how many owners are read next

	rows map[uint64]*jobRow // that are locked, by Seq

	now   queue.Instant
	slot  *queue.Slot
	aside []*readyJob // this slot cannot get them
	owner *orderOwner // whose turn is first
	want  want
}

// An orderRow is what the row of an endpoint says of its lines.
type orderRow struct {
	mixed   bool // it has had several lines
	counted bool // what runs is counted in the rows
}

// A lineName names a line of an endpoint.
type lineName struct {
	owner, key string
	prio       int
}

// none is after all places and turns.
const none = math.MaxInt64

// A want is what must be read before the next choice: more of a line, of a level, or of the owners.
type want struct {
	line   *orderLine
	level  *orderLevel
	owners bool
}

type orderOwner struct {
	name    string
	place   pgtype.TID // of its row; not valid: it has none
	served  int64      // as stored
	last    int64      // when it was last served
	turn    int64      // as stored
	waiting bool       // as stored
	stored  int        // runs as stored
	runs    int
	levels  [queue.MaxPriority + 1]orderLevel
	keys    map[string]*orderUse
}

type orderLevel struct {
	owner            *orderOwner
	prio             int
	turn, head       int64 // as stored; none: no line of it waits
	turnsTo, headsTo int64
	step             int    // how many lines are read next
	read             [2]int // how many were found of those that are read now
	open             bool   // they are
	lines            []*orderLine
}

// An orderUse is what runs of a key.
type orderUse struct {
	place        pgtype.TID
	stored, runs int
}

// An orderLine is a line with its oldest jobs.
type orderLine struct {
	owner        *orderOwner
	prio         int
	key          string
	use          *orderUse // nil: the line has no key
	place        pgtype.TID
	head         int64 // no job is before it
	stored       int64 // head as stored
	served, last int64 // as stored, and when it was last served
	waiting      bool  // as stored
	jobs         []*readyJob
	more         bool // there may be jobs after these
}

type readyJob struct {
	line            *orderLine
	seq             uint64
	queued, expires queue.Instant
	lost            queue.WorkerID
	place           pgtype.TID // of its row
	aside           bool       // the slot cannot get it
	taken           bool       // it was chosen
	claimed         bool
}

func newOrder(endpoint string, z *sizes) *order {
	return &order{endpoint: endpoint, sizes: z, step: z.firstRead, names: map[string]*orderOwner{}, rows: map[uint64]*jobRow{}}
}

// ownerOf returns an owner, which is added without levels if it is not there.
func (o *order) ownerOf(name string) (w *orderOwner, added bool) {
	if w = o.names[name]; w != nil {
		return w, false
	}
	w = &orderOwner{name: name, keys: map[string]*orderUse{}}
	for p := range w.levels {
		w.levels[p] = orderLevel{owner: w, prio: p, turn: none, head: none, turnsTo: none, headsTo: none, step: o.sizes.firstRead}
	}
	o.names[name] = w
	o.owners = append(o.owners, w)
	return w, true
}

func (w *orderOwner) keyUse(key string) *orderUse {
	if key == "" {
		return nil
	}
	u := w.keys[key]
	if u == nil {
		u = &orderUse{}
		w.keys[key] = u
	}
	return u
}

// next returns the job that a slot gets next; nil: there is none, or want is set.
func (o *order) next(now queue.Instant, s *queue.Slot) *readyJob {
	o.now, o.slot = now, s
	if !o.room(rateName{}) {
		o.want = want{}
		return nil
	}
	for {
		o.want = want{}
		j, choice := queue.Choose(o, &o.rules, o.running, now)
		switch {
		case choice == queue.ChooseNone || o.want != want{}:
			return nil
		case choice == queue.ChooseJob:
			return j
		}
		j.aside = true
		o.aside = append(o.aside, j)
	}
}

// begin begins with another slot, which may get what was put aside.
func (o *order) begin(s *queue.Slot) {
	for _, j := range o.aside {
		j.aside = false
	}
	o.aside = o.aside[:0]
	r := queue.Rules{}
	if s.Rules != nil {
		r = *s.Rules
	}
	o.rules = r
}

// Levels implements queue.Heads.
func (o *order) Levels() (bits uint16) {
	first, best := (*orderOwner)(nil), int64(none)
	var w want
	for _, owner := range o.owners {
		if turn, need := o.turnOf(owner); turn < best {
			first, best, w = owner, turn, need
		}
	}
	switch {
	case best-1 > o.ownersTo: // of two with this turn in their rows, only one has it
		o.want.owners = true
		return 0
	case first == nil || w != want{}:
		o.want = w
		return 0
	}
	o.owner = first
	for p := range first.levels {
		j, at, need := o.oldest(&first.levels[p])
		switch {
		case need != want{} && at < none:
			o.want = need
			return 0
		case j != nil:
			bits |= 1 << p
		}
	}
	return bits
}

// turnOf returns the turn of an owner, or that it is not before this one and what must be read to tell.
func (o *order) turnOf(w *orderOwner) (turn int64, need want) {
	if o.isFull(w) {
		return none, want{}
	}
	first := int64(none)
	for p := range w.levels {
		if _, at, n := o.oldest(&w.levels[p]); at < first {
			first, need = at, n
		}
	}
	if first == none {
		return none, want{}
	}
	return max(w.last, first), need
}

func (o *order) isFull(w *orderOwner) bool {
	return o.rules.PerUser > 0 && w.runs >= o.rules.PerUser || !o.room(rateName{what: rateOfOwner, owner: w.name})
}

// oldest returns the oldest job of a level and its place, or that none is before this place.
func (o *order) oldest(v *orderLevel) (first *readyJob, at int64, need want) {
	at = none
	if v.headsTo < none {
		at, need = v.headsTo+1, want{level: v}
	}
	for _, l := range v.lines {
		if j, seq, n := o.firstOf(l); seq < at || seq == at && j != nil {
			first, at, need = j, seq, n
		}
	}
	return first, at, need
}

// firstOf returns the first job of a line and its place, or that none is before this place.
func (o *order) firstOf(l *orderLine) (first *readyJob, at int64, need want) {
	if o.isLineFull(l) {
		return nil, none, want{}
	}
	for _, j := range l.jobs {
		if !j.taken && !j.aside {
			return j, int64(j.seq), want{}
		}
	}
	if !l.more {
		return nil, none, want{}
	}
	return nil, l.after(), want{line: l}
}

// after is the place at which jobs that were not read begin.
func (l *orderLine) after() int64 {
	if n := len(l.jobs); n > 0 {
		return int64(l.jobs[n-1].seq) + 1
	}
	return l.head
}

func (o *order) isLineFull(l *orderLine) bool {
	limit := o.rules.KeyLimit(l.key)
	return l.use != nil && limit > 0 && l.use.runs >= limit || !o.room(rateName{rateOfKey, l.owner.name, l.key})
}

// Oldest implements queue.Heads.
func (o *order) Oldest(priority int) queue.Head[*readyJob] {
	j, _, _ := o.oldest(&o.owner.levels[priority])
	return o.headOf(j)
}

// First implements queue.Heads. If it cannot tell, want is set.
func (o *order) First(priority int) queue.Head[*readyJob] {
	v := &o.owner.levels[priority]
	first, best, need := (*readyJob)(nil), int64(none), want{}
	if v.turnsTo < none {
		best, need = v.turnsTo+1, want{level: v}
	}
	for _, l := range v.lines {
		j, seq, n := o.firstOf(l)
		if seq == none {
			continue
		}
		if turn := max(l.last, seq); turn < best || turn == best && j != nil {
			first, best, need = j, turn, n
		}
	}
	o.want = need
	return o.headOf(first)
}

// headOf says whether the slot can get a job.
func (o *order) headOf(j *readyJob) queue.Head[*readyJob] {
	if j == nil {
		return queue.Head[*readyJob]{}
	}
	return queue.Head[*readyJob]{Job: j, Queued: j.queued, Barred: j.expires <= o.now || j.lost != "" && j.lost == o.slot.Worker}
}

// take makes a choice. served is a number of job_seq; 0: turns do not matter.
func (o *order) take(j *readyJob, served int64) {
	j.taken = true
	o.run(j, 1)
	o.starts(j.line, false)
	if served > 0 {
		j.line.last, j.line.owner.last = served, served
	}
}

// untake takes a choice back.
func (o *order) untake(j *readyJob) {
	o.run(j, -1)
	o.starts(j.line, true)
}

// run counts n more running jobs.
func (o *order) run(j *readyJob, n int) {
	o.running += n
	if !o.counted {
		return
	}
	j.line.owner.runs += n
	if u := j.line.use; u != nil {
		u.runs += n
	}
}

// rest says how the row of a line is left: its first job that nobody has claimed.
func (o *order) rest(l *orderLine) (head int64, waiting bool) {
	i := slices.IndexFunc(l.jobs, func(j *readyJob) bool { return !j.claimed })
	switch {
	case i >= 0:
		head = int64(l.jobs[i].seq)
	case l.more:
		head = l.after()
	}
	return head, head > 0 && !o.isLineFull(l)
}

// look finds out whether there are several lines, before the first choice.
func (o *order) look() {
	for _, w := range o.owners {
		for p := range w.levels {
			for _, l := range w.levels[p].lines {
				o.mixed = o.mixed || o.first != lineName{w.name, l.key, p}
			}
		}
	}
}

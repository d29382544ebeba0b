package postgres

import (
	"context"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// A Plan is a statement with the indexes that its plan must use.
type Plan struct {
	SQL     string
	Args    int
	Indexes []string
	Sorts   bool // the plan may sort, because it has few rows to sort
}

// PlanSettings are the settings of connections that make plans for the queue.
const PlanSettings = planSettings

// Plans returns the statements of which plans matter, also for a single row.
func Plans() map[string]Plan {
	all := plans()
	for name, p := range plans() {
		if f := newRowForm(p.SQL); len(f.columns) > 0 {
			p.SQL = f.sql
			all[name+", one row"] = p
		}
	}
	return all
}

func plans() map[string]Plan {
	return map[string]Plan{
		"add":         {sqlAdd, 22, nil, true},
		"add or not":  {sqlAddUnlessNear, 28, []string{"job_holdings_pkey"}, true},
		"lock":        {sqlLock, 2, []string{"jobs_pkey"}, false},
		"update":      {sqlUpdate, 10, []string{"jobs_pkey"}, false},
		"delete":      {sqlDelete, 2, []string{"jobs_pkey"}, false},
		"unready":     {sqlUnready, 6, []string{"job_ready_pkey"}, false},
		"stopped":     {sqlStopped, 4, []string{"job_running_pkey"}, false},
		"outputs":     {sqlDropOutputs, 1, []string{"job_outputs_pkey"}, false},
		"chunks":      {sqlDropChunks, 2, []string{"job_chunks_pkey"}, false},
		"outbox":      {sqlPutOutbox, 11, []string{"job_bodies_pkey", "job_outputs_pkey"}, true},
		"dead":        {sqlPutDead, 10, []string{"job_bodies_pkey", "job_outputs_pkey"}, true},
		"trim dead":   {sqlTrimDead, 4, []string{"job_dead_owner"}, true},
		"drop dead":   {sqlDropDead, 3, []string{"job_dead_pkey"}, true},
		"read dead":   {sqlDead, 2, []string{"job_dead_pkey"}, false},
		"head":        {sqlHead, 2, []string{"job_endpoints_pkey", "job_ready_pkey", "job_news_tx", "job_lines_pkey"}, false},
		"fold":        {sqlFoldRows, 2, []string{"job_counters_pkey"}, true},
		"expire dead": {sqlExpireDead, 3, []string{"job_dead_until"}, true},
		"holdings":    {sqlHoldings, 1, []string{"job_holdings_pkey"}, false},
		"near":        {nearLimits, 6, []string{"job_holdings_pkey"}, false},
		"bytes held":  {sqlBytesHeld, 2, []string{"jobs_pkey", "job_holdings_pkey"}, true},
		"hold":        {sqlHold, 5, nil, false},
		"fold held":   {sqlFoldHoldingRows, 2, []string{"job_holdings_pkey"}, true},
		"fold loose":  {sqlFoldLooseHoldings, 0, []string{"job_holdings_loose"}, true},
		"lock seqs":   {sqlLockSeqs, 2, []string{"jobs_seq"}, false},
		"inputs":      {sqlInputs, 1, []string{"job_bodies_pkey"}, false},
		"lock first":  {sqlLockFirst, 4, []string{"job_endpoints_pkey", "job_ready_pkey", "job_news_tx", "job_lines_pkey", "jobs_seq"}, false},
		"news":        {sqlNews, 4, []string{"job_news_tx", "job_lines_pkey", "job_owners_pkey", "job_ready_pkey"}, true},
		"owners":      {sqlFirstOwners, 5, []string{"job_owners_turn", "job_lines_turn", "job_lines_head", "job_lines_pkey", "job_ready_pkey"}, false},
		"level":       {sqlLevel, 7, []string{"job_lines_turn", "job_lines_head", "job_lines_pkey", "job_ready_pkey"}, false},
		"keys":        {sqlKeyLines, 4, []string{"job_lines_pkey", "job_ready_pkey"}, false},
		"more":        {sqlMoreOfLine, 6, []string{"job_ready_pkey"}, false},
		"drop lines":  {sqlDropLines, 1, []string{"job_lines_idle"}, false},
		"put lines":   {sqlPutLines, 5, nil, false},
		"put owners":  {sqlPutOwners, 7, nil, false},
		"due":         {sqlDue, 3, []string{"job_due_pkey", "jobs_seq"}, false},
		"drop due":    {sqlDropDue, 2, []string{"job_due_pkey"}, false},
		"next due":    {sqlNextDue, 2, []string{"job_due_pkey", "jobs_seq"}, false},
		"purge":       {sqlPurge, 4, []string{"jobs_seq"}, false},
		"get":         {sqlGet, 2, []string{"jobs_pkey", "job_bodies_pkey", "job_outputs_pkey"}, false},
		"list":        {sqlList, 6, []string{"jobs_seq"}, false},
		"list ids":    {sqlListIDs, 2, []string{"jobs_pkey"}, false},
		"running":     {sqlListRunning, 1, []string{"job_running_pkey", "jobs_pkey"}, false},
		"heads":       {sqlHeads, 2, []string{"job_ready_pkey"}, false},
		"counts":      {sqlCounts, 2, []string{"job_counters_pkey"}, false},
		"claimed": planOf([]string{"jobs_pkey", "job_ready_pkey", "job_bodies_pkey"},
			sqlUpdate, 10, sqlUnready, 6, sqlRunning, 8, sqlArm, 3, sqlCount, 11, sqlInputs, 1),
		"finished": planOf([]string{"jobs_pkey", "job_running_pkey"},
			sqlUpdate, 10, sqlStopped, 4, sqlPutFirstOutputs, 3, sqlArm, 3, sqlCount, 11, sqlAsKnown, 1),
		"expire uses": {sqlExpireUses, 2, []string{"uses_ended"}, false},
		"deliver":     {sqlDeliver, 4, []string{"job_outbox_due"}, false},
	}
}

// planOf is the plan of statements that are made as one, each followed by how many arguments it has.
func planOf(indexes []string, list ...any) Plan {
	var m merged
	args := 0
	for i := 0; i < len(list); i += 2 {
		n := list[i+1].(int)
		m, args = append(m, statement{list[i].(string), make([]any, n)}), args+n
	}
	return Plan{m.text(), args, indexes, true}
}

// Literal is literal.
func Literal(arg any) any { return literal(arg) }

// Statements that look for rows at their places.
const (
	SQLUpdate  = sqlUpdate
	SQLUnready = sqlUnready
)

// From returns where a claim begins to read the news of an endpoint.
func (q *Jobs) From(endpoint string) int64 {
	e, _ := q.news.of(endpoint)
	return e.from
}

// Eager has counters change their rows at each commit. It is called before the queue is used.
func (q *Jobs) Eager() { q.sizes.generation = 1 }

// CopyAll has all calls copy their jobs. It is called before the queue is used.
func (q *Jobs) CopyAll() { q.sizes.copyFrom = 1 }

// EnqueueTogether makes calls of Enqueue that share a transaction.
func (q *Jobs) EnqueueTogether(ctx context.Context, calls ...[]queue.Job) (errs []error) {
	var list []*addCall
	for _, jobs := range calls {
		list = append(list, &addCall{jobs: jobs, answer: newAnswer()})
	}
	q.addAll(ctx, list, q.rowsOf(1)[0])
	for _, c := range list {
		errs = append(errs, c.answer.await(ctx))
	}
	return errs
}

// Knows reports whether the Store moves a job without reading it first.
func (q *Jobs) Knows(ref queue.Ref) bool {
	q.held.mu.Lock()
	defer q.held.mu.Unlock()
	_, ok := q.held.list[ref]
	return ok
}

// Forget has the Store forget a job that it knows.
func (q *Jobs) Forget(ref queue.Ref) { q.held.forget([]queue.Ref{ref}) }

// Short returns options with which a Store waits for the database about a tenth of the usual times.
func Short(o *Options) *Options {
	o.times = times{
		attempt: time.Second, statement: 800 * time.Millisecond, check: 300 * time.Millisecond, again: 1500 * time.Millisecond,
		stalled: 500 * time.Millisecond, reported: 500 * time.Millisecond, listen: 200 * time.Millisecond,
	}
	return o
}

// Stalled returns for how long the oldest transaction of calls that share one has been under way.
func (q *Jobs) Stalled() time.Duration { return q.stalled() }

// ClaimReads are the statements with which a claim of some jobs of an endpoint reads, with their arguments.
func (q *Jobs) ClaimReads(endpoint string, n int, now queue.Instant) map[string][]any {
	ep, from := []byte(endpoint), q.From(endpoint)
	return map[string][]any{
		sqlLockFirst:   {ep, from, n, int64(now)},
		sqlNews:        {ep, lineDepth, from, maxNews},
		sqlFirstOwners: {ep, lineDepth, n, firstRead, int64(0)},
	}
}

// CallersTime returns options with which rates go by the instants of calls.
func CallersTime(o *Options) *Options {
	o.sizes.callersTime = true
	return o
}

// Tiny returns options with which a Store reads, writes and keeps one to three of everything at once.
func Tiny(o *Options) *Options {
	o.sizes = sizes{
		callersTime: true,
		items:       2, bytes: 100, chosen: 1, chosenOfBytes: 1, news: 1, newsReads: 2, lineDepth: 1, moreOfLine: 2, firstRead: 1, rowLag: 1, dropShare: 1,
		held: 2, list: 1, listMost: 3, copyFrom: 3, copyRows: 2, copyAhead: 1, due: 1, dueMost: 3, generation: 2, foldSweeps: 1, looseSweeps: 1, keptEpochs: 1,
		eventBytes: 1, events: 2,
	}
	return o
}

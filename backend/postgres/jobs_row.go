package postgres

import (
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/podyard/podyard/serverless/queue"
)

// A jobRow is a job as the database has it.
type jobRow struct {
	num int64
	// Where its row was when it was locked, and that of job_ready; a statement that does not find a row
	// there looks in the index. Zero if the row was not read.
	place, readyPlace pgtype.TID

	armed   queue.Instant
	job     queue.Job
	known   knownRow
	counted bool // a claim that is counted in the line
}

// counting says what job_running.counted is of a job that begins to run: 1 if the claim counts it in its line, and
// 2 (NULL) if a trigger tells the line, because a worker took the job back without a claim.
func (r *jobRow) counting(op *queue.Op) int16 {
	if op.Kind != queue.OpClaim {
		return 2
	}
	return int16(bit(r.counted))
}

// jobColumns are what scan reads, of the table with the alias j.
const jobColumns = `j.num, j.armed, j.seq, j.ep, j.id, j.owner, j.key, j.state`

// lockedColumns are what is read of a row that is locked, too.
const lockedColumns = jobColumns + `, j.ctid`

// A jobScan has the columns of a row while it is read. Buffers are reused from row to row.
type jobScan struct {
	num, armed, seq           int64
	ep, id, owner, key, state []byte
}

func (c *jobScan) targets(more ...any) []any {
	return append([]any{&c.num, &c.armed, &c.seq, &c.ep, &c.id, &c.owner, &c.key, &c.state}, more...)
}

func (c *jobScan) row() (*jobRow, error) {
	s, err := decodeState(c.state, c.seq)
	return &jobRow{
		num: c.num, armed: queue.Instant(c.armed),
		job: queue.Job{Ref: queue.Ref{Endpoint: string(c.ep), ID: queue.JobID(c.id)}, Owner: string(c.owner), Key: string(c.key), State: s},
	}, err
}

// jobRows reads rows with jobColumns.
func jobRows(rows pgx.Rows, err error) (list []*jobRow, _ error) {
	if err != nil {
		return nil, err
	}
	var c jobScan
	_, err = pgx.ForEachRow(rows, c.targets(), func() error {
		r, err := c.row()
		list = append(list, r)
		return err
	})
	return list, err
}

// lockedRows reads rows with lockedColumns.
func lockedRows(rows pgx.Rows) (list []*jobRow, err error) {
	var c jobScan
	var place pgtype.TID
	_, err = pgx.ForEachRow(rows, c.targets(&place), func() error {
		r, err := c.row()
		r.place = place
		list = append(list, r)
		return err
	})
	return list, err
}

// payloadColumns are what payloads reads, of the bodies b and the outputs o.
const payloadColumns = `b.input, b.webhook, b.extra, b.trace_parent, b.trace_state, o.output, o.error`

// payloads has the payloads of a job while they are read.
type payloads struct{ input, webhook, extra, parent, state, output, err []byte }

func (p *payloads) targets() []any { return append(p.inputs(), &p.output, &p.err) }

func (p *payloads) inputs() []any { return []any{&p.input, &p.webhook, &p.extra, &p.parent, &p.state} }

// fill moves the payloads into j.
func (q *Jobs) fill(p *payloads, j *queue.Job) (err error) {
	j.Input, j.Output = p.input, p.output
	j.Webhook, j.Error = string(p.webhook), string(p.err)
	j.Trace = queue.Trace{Parent: string(p.parent), State: string(p.state)}
	switch {
	case queue.PlainExtra(p.extra):
		j.Extra = p.extra
	case p.extra != nil:
		j.Extra, err = q.s.seals.open(extraName(j.Ref), p.extra)
	}
	*p = payloads{}
	return err
}

// extraName is what the encrypted Extra of a job is bound to.
func extraName(ref queue.Ref) []byte { return fmt.Appendf(nil, "job %q %q", ref.Endpoint, ref.ID) }

// sealExtra encrypts the Extra of a job. One without secrets needs no key.
func (q *Jobs) sealExtra(j *queue.Job) ([]byte, error) {
	switch {
	case j.Extra == nil:
		return nil, nil
	case q.s.seals.key == nil && queue.PlainExtra(j.Extra):
		return j.Extra, nil
	}
	return q.s.seals.seal(extraName(j.Ref), j.Extra)
}

// orNull makes an empty text a NULL.
func orNull[T ~string](s T) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

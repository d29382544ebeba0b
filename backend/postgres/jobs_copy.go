package postgres

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/podyard/podyard/serverless/queue"
)

// The jobs of a large call are copied into their tables: the database need not make arrays into rows,
// writes a record of its log for a page and not for a row, and works while the next rows are encoded. That takes
// two round trips more than one statement, so few jobs are better added by one.

// manyJobs is from how many jobs on a call copies them. Calls that share a transaction have fewer.
const manyJobs = maxItems + 1

const (
	copyJobs   = `COPY podyard.jobs (num, seq, armed, gone, status, ep, id, owner, key, state) FROM STDIN BINARY`
	copyBodies = `COPY podyard.job_bodies (num, input, webhook, extra, trace_parent, trace_state) FROM STDIN BINARY`
	copyReady  = `COPY podyard.job_ready (ep, owner, prio, key, seq, queued, expires, low, lost) FROM STDIN BINARY`
)

// copyTo does what the statements of addStatement do.
func (q *Jobs) copyTo(ctx context.Context, t *jobTx, jobs []queue.Job, slot int64, r *rooms) (seqs []int64, err error) {
	if len(r.owner) > 0 {
		users, err := t.near(ctx, r)
		if err != nil {
			return nil, err
		}
		if len(users) > 0 {
			return nil, errNear
		}
	}
	c := copier{t: t, jobs: jobs, armed: firstArmed(jobs)}
	q.dues.armed(queue.Instant(slices.Min(c.armed)))
	for i := range jobs {
		sealed, err := q.sealExtra(&jobs[i])
		if err != nil {
			return nil, err
		}
		c.extras = append(c.extras, sealed)
	}
	if err := c.number(ctx); err != nil {
		return nil, err
	}
	if err := t.copy(ctx, q.sizes, len(jobs), copied{copyJobs, c.job}, copied{copyBodies, c.body}, copied{copyReady, c.ready}); err != nil {
		return nil, err
	}
	b := &pgx.Batch{}
	c.counted(slot).queue(b, &q.texts)
	return c.seqs, t.commit(ctx, b, true)
}

// A copier copies jobs into their tables.
type copier struct {
	t      *jobTx
	jobs   []queue.Job
	armed  []int64
	extras [][]byte // sealed
	seqs   []int64
}

// number begins the transaction, if nothing did, and gives each job its place in the queue.
func (c *copier) number(ctx context.Context) error {
	b := &pgx.Batch{}
	b.Queue(sqlNextSeqs, len(c.jobs)).Query(func(rows pgx.Rows) (err error) {
		c.seqs, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	return c.t.send(ctx, b)
}

func (c *copier) job(b []byte, i int) []byte {
	j := &c.jobs[i]
	b = copyNumbers(copyRow(b, 10), c.seqs[i], c.seqs[i], c.armed[i], int64(j.Expires))
	b = copySmall(b, int16(j.Status))
	b = copyText(copyText(copyText(copyText(b, j.Endpoint), j.ID), j.Owner), j.Key)
	return copyBytes(b, encodeState(&j.State))
}

func (c *copier) body(b []byte, i int) []byte {
	j := &c.jobs[i]
	b = copyNumbers(copyRow(b, 6), c.seqs[i])
	for _, v := range [...][]byte{j.Input, orNull(j.Webhook), c.extras[i], orNull(j.Trace.Parent), orNull(j.Trace.State)} {
		b = copyBytes(b, v)
	}
	return b
}

func (c *copier) ready(b []byte, i int) []byte {
	j := &c.jobs[i]
	if readyOf(&j.State) == (readyRow{}) {
		return b
	}
	b = copyText(copyText(copyRow(b, 9), j.Endpoint), j.Owner)
	b = copyText(copySmall(b, int16(j.Priority)), j.Key)
	b = copyNumbers(b, c.seqs[i], int64(j.Queued), int64(j.Expires))
	return copyText(copyBit(b, j.Flags&queue.LowPriority != 0), j.Lost)
}

// counted are the statements of what else new jobs have: when they are looked at, and what counts them.
func (c *copier) counted(slot int64) (list merged) {
	ep := make([][]byte, 0, len(c.jobs))
	all := counts{}
	for i := range c.jobs {
		j := &c.jobs[i]
		ep = appendText(ep, j.Endpoint)
		all.of(j.Endpoint).add(&j.State, uint64(c.seqs[i]))
	}
	addIf(&list, ep, sqlArm, c.armed, ep, c.seqs)
	all.add(&list, slot)
	heldBy(c.jobs).add(&list, slot)
	return list
}

// copied are rows that a statement copies.
type copied struct {
	sql string
	row func(b []byte, i int) []byte // appends a row in the binary format of COPY, or nothing
}

const (
	copyStep   = 200     // rows
	copyAhead  = 64      // statements
	copyBuffer = 1 << 16 // bytes
	copyHead   = "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"
)

// copy copies n rows into each of some tables. The database collects up to 1,000 rows of a statement before
// it writes them, and takes the longer for each the more it has, so a statement has copyStep of them. It
// does not wait for the answer to the one before: copyAhead of them are one round trip. More answers could
// fill the buffers between the two, and then each would wait for the other to read.
func (t *jobTx) copy(ctx context.Context, z *sizes, n int, tables ...copied) error {
	conn := t.conn.Conn().PgConn()
	w := copyWriter{to: conn.Frontend()}
	for _, table := range tables {
		for from := 0; from < n; from += z.copyRows {
			if w.copy(&table, from, min(from+z.copyRows, n)); w.sent < z.copyAhead {
				continue
			}
			if err := w.end(ctx, conn); err != nil {
				return err
			}
		}
	}
	return w.end(ctx, conn)
}

// end waits for the answers to what was sent, and returns the first refusal. After another error the
// connection is closed: an unknown part was sent, or not answered. ctx must be one that does not end.
func (w *copyWriter) end(ctx context.Context, conn *pgconn.PgConn) error {
	err := w.err
	if err == nil {
		err = w.to.Flush()
	}
	var refused error
	for ; err == nil && w.sent > 0; w.sent-- {
		var e error
		if e, err = copyAnswer(ctx, conn); refused == nil {
			refused = e
		}
	}
	if err == nil {
		return refused
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	_ = conn.Close(over) // at once
	return err
}

// copyAnswer reads the answer to a statement.
func copyAnswer(ctx context.Context, conn *pgconn.PgConn) (refused, err error) {
	for {
		m, err := conn.ReceiveMessage(ctx)
		if err != nil {
			return refused, err
		}
		switch m := m.(type) {
		case *pgproto3.ErrorResponse:
			refused = pgconn.ErrorResponseToPgError(m)
		case *pgproto3.ReadyForQuery:
			return refused, nil
		}
	}
}

// A copyWriter sends statements with their rows.
type copyWriter struct {
	to   *pgproto3.Frontend
	b    []byte // a message with rows
	sent int    // statements
	err  error
}

func (w *copyWriter) copy(table *copied, from, to int) {
	w.to.SendQuery(&pgproto3.Query{String: table.sql})
	w.begin()
	w.b = append(w.b, copyHead...)
	for i := from; i < to; i++ {
		w.b = table.row(w.b, i)
		if len(w.b) >= copyBuffer {
			w.send()
		}
	}
	w.b = append(w.b, 0xff, 0xff) // the end
	w.send()
	w.to.Send(&pgproto3.CopyDone{})
	w.sent++
}

// begin begins a message.
func (w *copyWriter) begin() {
	if w.b == nil {
		w.b = make([]byte, 0, 2*copyBuffer)
	}
	w.b = append(w.b[:0], 'd', 0, 0, 0, 0)
}

// send sends the message and begins another one.
func (w *copyWriter) send() {
	binary.BigEndian.PutUint32(w.b[1:], uint32(len(w.b)-1))
	if w.err == nil {
		w.err = w.to.SendUnbufferedEncodedCopyData(w.b)
	}
	w.begin()
}

// What follows appends a part of a row: the number of its columns, or columns.

func copyRow(b []byte, columns uint16) []byte { return binary.BigEndian.AppendUint16(b, columns) }

func copyLen(b []byte, n int) []byte { return binary.BigEndian.AppendUint32(b, uint32(n)) }

func copyNumbers(b []byte, list ...int64) []byte {
	for _, n := range list {
		b = binary.BigEndian.AppendUint64(copyLen(b, 8), uint64(n))
	}
	return b
}

func copySmall(b []byte, n int16) []byte { return copyRow(copyLen(b, 2), uint16(n)) }

func copyBit(b []byte, v bool) []byte { return append(copyLen(b, 1), byte(bit(v))) }

func copyText[T ~string](b []byte, s T) []byte { return append(copyLen(b, len(s)), s...) }

func copyBytes(b, v []byte) []byte {
	if v == nil {
		return copyLen(b, -1)
	}
	return append(copyLen(b, len(v)), v...)
}

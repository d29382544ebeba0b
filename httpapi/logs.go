package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

const aboutLogs = "Server-sent events. data is an object with ts, source and line; id is where a reader can go on, in the header Last-Event-ID."

func logParams() []*openapi.Parameter {
	cursor := openapi.Of("string").NotEmpty()
	return []*openapi.Parameter{
		inQuery("source", values(pods.ContainerLog, pods.SystemLog), "Absent: both."),
		number("tail", 0, maxTail, defaultTail, "How many past lines come first."),
		inQuery("since", cursor, "A time, or the id of an event: all later lines come. tail then does not count."),
		{Name: "Last-Event-ID", In: "header", Schema: openapi.Of("string"), Description: "As since, which it precedes."},
	}
}

// Bounds of the query parameter tail.
const (
	defaultTail = 100
	maxTail     = 5000
)

// Intervals of an event stream.
const (
	keepAlive = 15 * time.Second // between two comments
	lookEvery = keepAlive / 6    // between two looks whether the key is still good
)

// A pulse ticks every lookEvery.
type pulse struct {
	*time.Ticker

	n int
}

func newPulse() *pulse { return &pulse{Ticker: time.NewTicker(lookEvery)} }

// beats counts a tick, and reports whether a comment is due.
func (p *pulse) beats() bool {
	p.n++
	return p.n%int(keepAlive/lookEvery) == 0
}

// systemSeq is added to the sequence numbers of system lines in event ids, so that a cursor
// shows its source.
const systemSeq = 900_000_000_000

// A logLine is a line with its source.
type logLine struct {
	pods.LogLine
	source pods.LogSource
}

// podLogs streams the log of a pod until the pod is terminated or the client disconnects.
func podLogs(c *call) error {
	if err := c.podExists(); err != nil {
		return err
	}
	return c.streamLog(func(ctx context.Context, src pods.LogSource, q pods.LogQuery) (iter.Seq2[pods.LogLine, error], error) {
		return c.Pods.Logs(ctx, c.owner, c.r.PathValue("id"), src, q)
	})
}

// A logReader reads one source of a log, as pods.Service.Logs does. An error means that the
// record is gone.
type logReader func(ctx context.Context, src pods.LogSource, q pods.LogQuery) (iter.Seq2[pods.LogLine, error], error)

// streamLog answers with a log as server-sent events: first the past lines that the cursor
// or tail selects, then new lines, until the record is gone or the client disconnects.
func (c *call) streamLog(read logReader) error {
	q, err := c.logQuery()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	past := c.since(ctx, read, q)
	if !q.resumes {
		tail, err := c.tail(ctx, read, q)
		if err != nil {
			return err
		}
		past = slices.Values(tail)
	}
	if !c.sendPast(past) {
		return nil
	}
	lines := c.followAll(ctx, read, q)
	c.sendEvents(lines, q.after)
	cancel()
	for range lines { // until the followers have ended
	}
	if problem.KindOf(context.Cause(c.r.Context())) == problem.Unavailable {
		c.sendRest(read, q)
	}
	return nil
}

// restTime is how long the server that ends looks for the rest of a log.
const restTime = 500 * time.Millisecond

// sendRest sends the lines that nobody had followed yet when the server ended the request: they say how the
// server has ended the pod.
func (c *call) sendRest(read logReader, q logQuery) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), restTime)
	defer cancel()
	c.sendLines(c.since(ctx, read, q))
}

// followAll sends new lines of all sources. The channel is closed when the sources or ctx have
// ended.
func (c *call) followAll(ctx context.Context, read logReader, q logQuery) <-chan logLine {
	lines := make(chan logLine, 256)
	var wg sync.WaitGroup
	for _, src := range q.sources {
		from := q.from(src)
		from.Follow = true
		seq, err := read(ctx, src, from)
		if err != nil { // the record is gone: the stream ends
			break
		}
		wg.Go(func() { c.follow(ctx, src, seq, lines) })
	}
	go func() { wg.Wait(); close(lines) }()
	return lines
}

// A logQuery has the parameters of a request.
type logQuery struct {
	sources []pods.LogSource
	tail    int
	resumes bool                            // there is a cursor, and tail is ignored
	after   map[pods.LogSource]pods.LogLine // where each source continues
}

// from returns the query for all lines of a source after the cursor.
func (q *logQuery) from(src pods.LogSource) pods.LogQuery {
	return pods.LogQuery{After: q.after[src].At, AfterSeq: q.after[src].Seq, Tail: -1}
}

func (c *call) logQuery() (q logQuery, err error) {
	source, err := queryOneOf(c, "source", "", pods.ContainerLog, pods.SystemLog)
	if err != nil {
		return q, err
	}
	q.sources = []pods.LogSource{source}
	if source == "" {
		q.sources = []pods.LogSource{pods.ContainerLog, pods.SystemLog}
	}
	if q.tail, err = c.queryInt("tail", defaultTail, 0, maxTail); err != nil {
		return q, err
	}
	q.after = map[pods.LogSource]pods.LogLine{}
	cursor, name := c.r.Header.Get("Last-Event-ID"), "Last-Event-ID"
	q.resumes = cursor != ""
	if !q.resumes {
		name = "since"
		cursor, q.resumes = c.query(name)
	}
	if !q.resumes {
		return q, nil
	}
	q.after, err = parseCursor(cursor)
	if err != nil {
		return q, problem.Newf(problem.Invalid, "%s must be an RFC 3339 timestamp or an id that this stream has sent", name)
	}
	return q, nil
}

// parseCursor parses "<timestamp>" or "<timestamp>/<sequence>". A line of the other source
// at the same instant may be sent twice, so that none is missed.
func parseCursor(s string) (map[pods.LogSource]pods.LogLine, error) {
	ts, num, found := strings.Cut(s, "/")
	at, fault := instantOf(ts, "is no time")
	if fault != "" {
		return nil, fmt.Errorf("httpapi: cursor %q: %s", ts, fault)
	}
	after := map[pods.LogSource]pods.LogLine{pods.ContainerLog: {At: at}, pods.SystemLog: {At: at}}
	if !found {
		return after, nil
	}
	n, err := strconv.ParseUint(num, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("httpapi: cursor: %w", err)
	}
	if n >= systemSeq {
		after[pods.SystemLog] = pods.LogLine{At: at, Seq: n - systemSeq}
	} else {
		after[pods.ContainerLog] = pods.LogLine{At: at, Seq: n}
	}
	return after, nil
}

// tail returns the last lines of all sources together, and sets where each source
// continues.
func (c *call) tail(ctx context.Context, read logReader, q logQuery) (past []logLine, err error) {
	for _, src := range q.sources {
		seq, err := read(ctx, src, pods.LogQuery{Tail: max(q.tail, 1)})
		if err != nil {
			return nil, err
		}
		for l, err := range seq {
			if err != nil {
				return nil, err
			}
			past = append(past, logLine{l, src})
			q.after[src] = l
		}
	}
	slices.SortStableFunc(past, logLine.compare)
	return past[max(len(past)-q.tail, 0):], nil
}

// compare orders the lines of all sources: by time, and at one instant by source.
func (l logLine) compare(m logLine) int {
	return cmp.Or(l.At.Compare(m.At), cmp.Compare(l.source, m.source), cmp.Compare(l.Seq, m.Seq))
}

// since returns the lines of all sources after the cursor, in the order of time. So a
// client that disconnects and continues with its last id misses no line of any source.
func (c *call) since(ctx context.Context, read logReader, q logQuery) iter.Seq[logLine] {
	return func(yield func(logLine) bool) {
		heads := map[pods.LogSource]logLine{}
		next := map[pods.LogSource]func() (pods.LogLine, error, bool){}
		advance := func(src pods.LogSource) {
			delete(heads, src)
			if l, err, ok := next[src](); ok && err == nil {
				heads[src] = logLine{l, src}
			}
		}
		for _, src := range q.sources {
			seq, err := read(ctx, src, q.from(src))
			if err != nil {
				return
			}
			pull, stop := iter.Pull2(seq)
			defer stop()
			next[src] = pull
			advance(src)
		}
		for len(heads) > 0 {
			l := slices.MinFunc(slices.Collect(maps.Values(heads)), logLine.compare)
			q.after[l.source] = l.LogLine
			if !yield(l) {
				return
			}
			advance(l.source)
		}
	}
}

// follow forwards lines until there are no more or ctx ends.
func (c *call) follow(ctx context.Context, src pods.LogSource, seq iter.Seq2[pods.LogLine, error], to chan<- logLine) {
	for l, err := range seq {
		if err != nil {
			if ctx.Err() == nil {
				c.log.Error("following a log failed", "path", c.r.URL.Path, "err", err)
			}
			return
		}
		select {
		case to <- logLine{l, src}:
		case <-ctx.Done():
			return
		}
	}
}

// sendPast begins the answer. It reports false when the client is gone, when its key is no longer
// good, and for HEAD, which gets no more. The past may be long and its reader slow.
func (c *call) sendPast(past iter.Seq[logLine]) bool {
	h := c.w.Header()
	setEventStream(h)
	h.Set("Connection", "keep-alive")
	c.w.WriteHeader(http.StatusOK)
	return c.r.Method != http.MethodHead && c.sendLines(past)
}

// sendLines sends lines. It reports false when the client is gone, and when its key is no longer good.
func (c *call) sendLines(past iter.Seq[logLine]) bool {
	var b []byte
	looked := time.Now()
	for l := range past {
		if time.Since(looked) >= lookEvery {
			if looked = time.Now(); !c.stillAllowed() {
				return false
			}
		}
		b = appendEvent(b[:0], l)
		if _, err := c.w.Write(b); err != nil {
			return false
		}
	}
	return true
}

// sendEvents writes lines, and flushes when no more are ready. In sent it keeps the last line of each source.
func (c *call) sendEvents(lines <-chan logLine, sent map[pods.LogSource]pods.LogLine) {
	rc := http.NewResponseController(c.w)
	var b []byte
	p := newPulse()
	defer p.Stop()
	for {
		var l logLine
		if len(lines) == 0 {
			if err := rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
				return
			}
		}
		select {
		case next, ok := <-lines:
			if !ok {
				return
			}
			l, b = next, appendEvent(b[:0], next)
		case <-p.C:
			if !c.stillAllowed() {
				return
			}
			if !p.beats() {
				continue
			}
			b = append(b[:0], ": still here\n\n"...)
		case <-c.r.Context().Done():
			return
		}
		if _, err := c.w.Write(b); err != nil {
			return
		}
		if l.source != "" {
			sent[l.source] = l.LogLine
		}
	}
}

// appendEvent writes one line as an event, with the cursor as its id.
func appendEvent(b []byte, l logLine) []byte {
	ts := l.At.UTC().Format(time.RFC3339Nano)
	seq := l.Seq
	if l.source == pods.SystemLog {
		seq += systemSeq
	}
	data, err := json.Marshal(struct {
		TS     string         `json:"ts"`
		Source pods.LogSource `json:"source"`
		Line   string         `json:"line"`
	}{ts, l.source, l.Text})
	if err != nil {
		return b // impossible: it has three strings
	}
	b = fmt.Appendf(b, "id: %s/%012d\ndata: ", ts, seq)
	b = append(b, data...)
	return append(b, "\n\n"...)
}

package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// maxEvent bounds a line of an event stream.
	maxEvent = 16 << 20
	// silence is after how long without a byte a connection counts as broken: servers send a
	// comment every 15 s.
	silence = time.Minute
)

// A message is one server-sent event.
type message struct {
	id, kind string
	data     []byte
	retry    time.Duration // that the server asks for before the next connection; 0: none
}

// messages reads an event stream. It ends at the end of the stream, also of a broken one.
func messages(r io.Reader, heard func()) iter.Seq[message] {
	return func(yield func(message) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxEvent)
		var m message
		for lines.Scan() {
			heard()
			line := lines.Bytes()
			if len(line) == 0 {
				if (len(m.data) > 0 || m.retry > 0) && !yield(m) {
					return
				}
				m = message{}
				continue
			}
			m.add(line)
		}
	}
}

// add adds a line.
func (m *message) add(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "id":
		m.id = string(value)
	case "event":
		m.kind = string(value)
	case "retry":
		if ms, err := strconv.Atoi(string(value)); err == nil {
			m.retry = time.Duration(ms) * time.Millisecond
		}
	case "data":
		if m.data != nil {
			m.data = append(m.data, '\n')
		}
		m.data = append(m.data, value...)
	}
}

// errSilent is the cause of a connection that was given up.
var errSilent = errors.New("client: the event stream is silent")

// follow iterates over the events of a stream. A connection that ends or breaks is made again,
// from the last event on, until the record is not there any more or ctx ends.
func follow[T any](ctx context.Context, c *Client, r *request, decode func(message) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		f := follower{request: *r}
		f.accept = "text/event-stream"
		delays := c.retry.delays()
		for connected := false; ; connected = true {
			got, stop, err := connection(ctx, c, &f, decode, yield)
			switch {
			case stop || connected && StatusOf(err) == http.StatusNotFound:
				return
			case err != nil:
				yield(none, err)
				return
			case got:
				delays.Reset()
			}
			if err := sleep(ctx, max(delays.NextBackOff(), f.pause)); err != nil {
				yield(none, err)
				return
			}
		}
	}
}

// A follower is a request for a stream that is made again.
type follower struct {
	request

	pause time.Duration // that the server asks for between connections

	at   string          // the instant of the last event: its id before the slash
	seen map[string]bool // ids of that instant
}

// isNew reports whether an event was not there before, and remembers it. A server that goes on
// from one line may repeat others of the same instant.
func (f *follower) isNew(id string) bool {
	if id == "" {
		return true
	}
	if at, _, _ := strings.Cut(id, "/"); at != f.at || f.seen == nil {
		f.at, f.seen = at, map[string]bool{}
	}
	if f.seen[id] {
		return false
	}
	f.seen[id], f.last = true, id
	return true
}

// connection reads one connection to its end. got says that there were events, stop that the
// iterator is over.
func connection[T any](ctx context.Context, c *Client, f *follower, decode func(message) (T, error), yield func(T, error) bool) (got, stop bool, err error) {
	alive, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	res, err := c.open(alive, &f.request)
	if err != nil {
		return false, false, err
	}
	defer closeBody(res)
	watch := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watch.Stop()
	for m := range messages(res.Body, func() { watch.Reset(silence) }) {
		f.pause = max(f.pause, min(m.retry, silence))
		if len(m.data) == 0 || !f.isNew(m.id) {
			continue
		}
		got = true
		watch.Stop() // the reader may take its time
		v, err := decode(m)
		if !yield(v, f.failed(err)) || err != nil {
			return got, true, nil
		}
		watch.Reset(silence)
	}
	return got, false, ctx.Err()
}

// A LogLine is a line of the log of a pod or a worker.
type LogLine struct {
	Time   time.Time `json:"ts"`
	Source string    `json:"source"` // container or system
	Text   string    `json:"line"`
	// ID is where LogOptions.Since goes on.
	ID string `json:"-"`
}

// LogOptions select lines. The zero value selects the last 100 of both sources, and all that
// come.
type LogOptions struct {
	Source string // container or system; empty: both
	Tail   *int   // how many past lines; nil: 100
	Since  string // a time in RFC 3339, or the ID of a line: all later ones, whatever Tail
}

// logs iterates over a log.
func logs(ctx context.Context, c *Client, path string, o *LogOptions) iter.Seq2[LogLine, error] {
	q := map[string][]string{}
	if o != nil {
		if o.Source != "" {
			q["source"] = []string{o.Source}
		}
		if o.Tail != nil {
			q["tail"] = []string{strconv.Itoa(*o.Tail)}
		}
		if o.Since != "" {
			q["since"] = []string{o.Since}
		}
	}
	return follow(ctx, c, to(c.control, http.MethodGet, path, q), func(m message) (l LogLine, err error) {
		err = json.Unmarshal(m.data, &l)
		l.ID = strings.Clone(m.id)
		return l, err
	})
}

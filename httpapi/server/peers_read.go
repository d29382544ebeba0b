package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

// A peerLine is a line of a log between servers, or the end of it with an error.
type peerLine struct {
	At   time.Time `json:"at"`
	Seq  uint64    `json:"seq"`
	Text string    `json:"text"`
	Err  bool      `json:"err,omitempty"`
}

// peerClient follows no redirect and uses no proxy: the address is that of a server.
func peerClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:           (&net.Dialer{Timeout: peerDialTime}).DialContext,
			TLSHandshakeTimeout:   peerDialTime,
			ResponseHeaderTimeout: peerWait,
			IdleConnTimeout:       time.Minute,
			MaxIdleConnsPerHost:   8,

			MaxResponseHeaderBytes: peerHead,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// serveLog streams what the container of a pod here has written, a line of JSON each. An empty
// line is a sign of life.
func serveLog(s *pods.Service, w http.ResponseWriter, r *http.Request) error {
	q, err := parseLogQuery(r.URL.Query())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	lines, err := s.HostLogs(ctx, r.PathValue("id"), q)
	if err != nil {
		return err
	}
	out := make(chan peerLine, 64)
	var reading sync.WaitGroup
	defer func() { cancel(); reading.Wait() }()
	reading.Go(func() { defer close(out); sendLines(ctx, lines, out) })
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	copyLines(ctx, w, out)
	return nil
}

func sendLines(ctx context.Context, lines iter.Seq2[pods.LogLine, error], out chan<- peerLine) {
	for l, err := range lines {
		line := peerLine{l.At, l.Seq, l.Text, err != nil}
		select {
		case out <- line:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// copyLines writes lines, and flushes when no more are ready.
func copyLines(ctx context.Context, w http.ResponseWriter, lines <-chan peerLine) {
	rc, enc := http.NewResponseController(w), json.NewEncoder(w)
	beat := time.NewTicker(peerBeat)
	defer beat.Stop()
	for {
		if len(lines) == 0 {
			if err := rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
				return
			}
		}
		var err error
		select {
		case l, ok := <-lines:
			if !ok {
				return
			}
			err = enc.Encode(l)
		case <-beat.C:
			_, err = io.WriteString(w, "\n")
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

func logQueryText(q pods.LogQuery) string {
	v := url.Values{"tail": {strconv.Itoa(q.Tail)}, "seq": {strconv.FormatUint(q.AfterSeq, 10)}, "follow": {strconv.FormatBool(q.Follow)}}
	if !q.After.IsZero() {
		v.Set("after", q.After.UTC().Format(time.RFC3339Nano))
	}
	return v.Encode()
}

func parseLogQuery(v url.Values) (q pods.LogQuery, err error) {
	var errs [4]error
	q.Tail, errs[0] = strconv.Atoi(v.Get("tail"))
	q.AfterSeq, errs[1] = strconv.ParseUint(v.Get("seq"), 10, 64)
	q.Follow, errs[2] = strconv.ParseBool(v.Get("follow"))
	if text := v.Get("after"); text != "" {
		q.After, errs[3] = time.Parse(time.RFC3339Nano, text)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return q, problem.New(problem.Invalid, "the query is not one of a server")
	}
	return q, nil
}

// A peer reads from the hosts of another server.
type peer struct {
	*peers
	name, address string
}

var (
	_ pods.LogReader = peer{}
	_ pods.Sampler   = peer{}
	_ pods.Executor  = peer{}
)

func (p *peers) reach(server, address string) (pods.LogReader, pods.Sampler, pods.Executor) {
	x := peer{p, server, address}
	return x, x, x
}

// Logs implements pods.LogReader.
func (p peer) Logs(ctx context.Context, podID string, q pods.LogQuery) iter.Seq2[pods.LogLine, error] {
	return func(yield func(pods.LogLine, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		resp, err := p.do(ctx, p.name, p.address, "pods/"+url.PathEscape(podID)+"/log?"+logQueryText(q))
		if err != nil {
			yield(pods.LogLine{}, err)
			return
		}
		defer func() { _ = resp.Body.Close() }() // it was only read
		silent := time.AfterFunc(peerSilence, cancel)
		defer silent.Stop()
		body := &peerReader{Reader: resp.Body, silent: silent}
		in := json.NewDecoder(body)
		for {
			var l peerLine
			body.left = peerText
			switch err := in.Decode(&l); {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(pods.LogLine{}, fmt.Errorf("server: read a log of %q: %w", p.name, err))
				return
			case l.Err:
				yield(pods.LogLine{}, fmt.Errorf("server: %q could not read the log", p.name))
				return
			}
			if !yield(pods.LogLine{At: l.At, Seq: l.Seq, Text: l.Text}, nil) {
				return
			}
		}
	}
}

// A peerReader notes that the other side lives, and reads no line that does not end. Nobody has to trust
// what answers at the address of a server.
type peerReader struct {
	io.Reader
	silent *time.Timer
	left   int // bytes until the next line must have come
}

var errPeerText = errors.New("a line is too large")

func (b *peerReader) Read(to []byte) (int, error) {
	if b.left <= 0 {
		return 0, errPeerText
	}
	n, err := b.Reader.Read(to[:min(len(to), b.left)])
	b.left -= n
	b.silent.Reset(peerSilence)
	return n, err
}

func serveSample(s *pods.Service, w http.ResponseWriter, r *http.Request) error {
	sample, ok := s.HostSample(r.Context(), r.PathValue("id"))
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(struct {
		pods.Sample
		OK bool
	}{sample, ok})
}

// Sample implements pods.Sampler. A server that did not answer is not asked for a while.
func (p peer) Sample(ctx context.Context, podID string) (pods.Sample, bool) {
	if p.isAway() {
		return pods.Sample{}, false
	}
	short, cancel := context.WithTimeout(ctx, sampleTime)
	defer cancel()
	resp, err := p.do(short, p.name, p.address, "pods/"+url.PathEscape(podID)+"/sample")
	if err != nil {
		if ctx.Err() == nil {
			p.noteAway()
		}
		return pods.Sample{}, false
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	var got struct {
		pods.Sample
		OK bool
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&got)
	return got.Sample, err == nil && got.OK
}

func (p peer) isAway() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clock.Now().Before(p.away[p.address])
}

func (p peer) noteAway() {
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, until := range p.away {
		if !now.Before(until) {
			delete(p.away, address)
		}
	}
	p.away[p.address] = now.Add(peerPause)
}

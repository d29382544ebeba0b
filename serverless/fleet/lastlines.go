package fleet

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/serverless/workers"
)

// Limits of the output of a failed worker that is shown with the reason of its failure.
const (
	lastLines    = 3
	lastLineSize = 200
	lastLinesFor = 2 * time.Second // for the fleet to answer
)

// lastLines returns the end of the output of a worker as one line, or "" if the fleet has none.
func (s *Scaler) lastLines(ctx context.Context, k workers.Key) string {
	logs, ok := As[WorkerLogs](s.o.Fleet)
	if !ok || k.ID == "" {
		return ""
	}
	ctx, cancel := clock.WithDeadline(ctx, s.o.Clock, s.o.Clock.Now().Add(lastLinesFor))
	defer cancel()
	var list []string
	for line, err := range logs.WorkerLogs(ctx, k.Endpoint, k.ID, LogQuery{Tail: lastLines}) {
		if err != nil {
			return ""
		}
		if text := shortLine(line.Text); text != "" {
			list = append(list, text)
		}
	}
	return strings.Join(list, " | ")
}

// shortLine returns a line of output without what is no text, cut where it is long.
func shortLine(s string) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return -1
		}
		return r
	}, s))
	if len(s) <= lastLineSize {
		return s
	}
	n := lastLineSize
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "..."
}

// failing adds the last output of the worker that failed to the reason of the back-off, and
// returns the back-off.
func (s *Scaler) failing(ctx context.Context, endpoint string, o *observation) Backoff {
	b := *o.failing
	if text := s.lastLines(ctx, o.failed); text != "" {
		b.Reason += "; its last output: " + text
		s.table.explainFailure(endpoint, b)
	}
	return b
}

// explainFailure sets the reason of a back-off, unless another failure has come.
func (t *table) explainFailure(endpoint string, b Backoff) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q := t.of(endpoint); q.backoff.Fails == b.Fails && q.backoff.At == b.At {
		q.backoff.Reason = b.Reason
	}
}

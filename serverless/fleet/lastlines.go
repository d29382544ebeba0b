package fleet

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/serverless/queue"
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
	if b.NoCapacity {
		return b
	}
	if text := s.lastLines(ctx, o.failed); text != "" {
		b.Reason += "; its last output: " + text
	}
	b.Crash.Reason = b.Reason
	s.table.explainFailure(endpoint, b)
	return b
}

// explainFailure sets the reason of a back-off, unless another failure has come.
func (t *table) explainFailure(endpoint string, b Backoff) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.of(endpoint)
	q.told = b.Crash
	if q.backoff.Crash.Since == b.Crash.Since && q.backoff.At == b.At {
		q.backoff.Reason, q.backoff.Crash = b.Reason, b.Crash
	}
}

// A Trouble says that the workers of an endpoint fail before they have done a job.
type Trouble struct {
	Crash

	Fails int           // in a row
	Next  queue.Instant // no worker is started before
}

func troubleOf(b Backoff, told Crash) (x Trouble, ok bool) {
	if b.Crashes() == 0 || told.Reason == "" {
		return Trouble{}, false
	}
	return Trouble{Crash: told, Fails: b.Crashes(), Next: b.Until}, true
}

// ReadTrouble returns what Trouble returns at the server that shows this by Lead.
func ReadTrouble(shown []byte) (x Trouble, ok bool, err error) {
	m, err := readMemory(shown)
	x, ok = troubleOf(m.Backoff, m.Backoff.Crash)
	return x, ok, err
}

// Trouble returns why the workers of an endpoint fail; ok is false while they do not. The first failure
// counts once the last output of its worker was read, so that the reason names the cause.
func (s *Scaler) Trouble(endpoint string) (x Trouble, ok bool) { return s.table.trouble(endpoint) }

// Holders returns how many workers of each endpoint, and how many pods, have the room for which workers
// of an endpoint wait. ok is false if none wait, or if the fleet does not know.
func (s *Scaler) Holders(ctx context.Context, endpoint string) (list map[string]int, pods int, ok bool, err error) {
	fleet, ok := As[RoomHolders](s.o.Fleet)
	if !ok || !s.table.waitsForRoom(endpoint) {
		return nil, 0, false, nil
	}
	list, pods, err = fleet.RoomHolders(ctx)
	return list, pods, true, err
}

package double

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/podyard/podyard/serverless"
)

// An Outcome is what a scripted endpoint does with a job. Exactly one of Reply, Fail, Hang and
// Stream is set.
type Outcome struct {
	When  any           // pattern of the input; nil: every input
	After time.Duration // by the clock, before it happens
	// Times is how many jobs it is for. 0 means one, except that the last outcome that matches
	// an input is repeated.
	Times int

	Reply  any    // the output of a job that completes
	Fail   string // the error of a job that fails
	Output any    // the output with Fail, or after Stream
	Hang   bool   // nothing, until the job is stopped
	Stream []any  // chunks; then the job completes with Output, or with the list of chunks
	Every  time.Duration
}

// A Script has the outcomes of an endpoint's jobs, so that no worker has to be written. Its
// methods add outcomes and return the Script. Use them from one goroutine at a time.
//
// For each job the first outcome is used that matches the input and is not used up. When,
// After, Times and Every apply to the next outcome that is added.
type Script struct {
	outcomes *outcomeList
	next     Outcome
}

// When restricts the next outcome to inputs that match: an object matches every object that has
// at least its members.
func (s *Script) When(input any) *Script { s.next.When = input; return s }

// After makes the next outcome take so long by the clock.
func (s *Script) After(d time.Duration) *Script { s.next.After = d; return s }

// Times makes the next outcome apply to n jobs.
func (s *Script) Times(n int) *Script { s.next.Times = n; return s }

// Every sets the time between the chunks of the next outcome.
func (s *Script) Every(d time.Duration) *Script { s.next.Every = d; return s }

// With sets the output with the next Fail or after the next Stream.
func (s *Script) With(output any) *Script { s.next.Output = output; return s }

// Reply completes a job.
func (s *Script) Reply(output any) *Script {
	if output == nil {
		output = json.RawMessage("null")
	}
	s.next.Reply = output
	return s.add()
}

// Fail fails a job.
func (s *Script) Fail(text string) *Script { s.next.Fail = text; return s.add() }

// Hang leaves a job running until it is cancelled, times out or is deleted.
func (s *Script) Hang() *Script { s.next.Hang = true; return s.add() }

// Stream sends chunks and completes.
func (s *Script) Stream(chunks ...any) *Script { s.next.Stream = chunks; return s.add() }

// Clear removes all outcomes. Without an outcome jobs fail.
func (s *Script) Clear() *Script {
	s.outcomes.mu.Lock()
	defer s.outcomes.mu.Unlock()
	s.outcomes.list = nil
	s.next = Outcome{}
	return s
}

// Add adds an outcome. Its error says what is wrong with it.
func (s *Script) Add(o Outcome) error { return s.outcomes.add(o) }

func (s *Script) add() *Script {
	if err := s.outcomes.add(s.next); err != nil {
		s.outcomes.wrong(err)
	}
	s.next = Outcome{}
	return s
}

// An outcomeList is the outcomes of one endpoint; it is its worker.
type outcomeList struct {
	endpoint string
	sleep    func(ctx context.Context, d time.Duration) error
	hang     func(ctx context.Context)

	mu   sync.Mutex
	list []*page
	bad  error // the error of an invalid outcome, with which every job fails
}

// A page is a checked outcome.
type page struct {
	Outcome
	when   pattern
	output []byte
	chunks [][]byte
	used   int
}

func (b *outcomeList) wrong(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bad = err
}

func (b *outcomeList) add(o Outcome) error {
	p, err := checkOutcome(o)
	if err != nil {
		return fmt.Errorf("double: endpoint %q: %w", b.endpoint, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, p)
	return nil
}

func checkOutcome(o Outcome) (p *page, err error) {
	kinds := 0
	for _, is := range [...]bool{o.Reply != nil, o.Fail != "", o.Hang, o.Stream != nil} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		return nil, fmt.Errorf("an outcome is exactly one of reply, fail, hang and stream")
	}
	if o.Times < 0 || o.After < 0 || o.Every < 0 {
		return nil, fmt.Errorf("times, after and every must not be negative")
	}
	p = &page{Outcome: o}
	if p.when, err = patternOf(o.When); err != nil {
		return nil, err
	}
	out := o.Output
	if o.Reply != nil {
		out = o.Reply
	}
	if out == nil && o.Stream != nil {
		out = o.Stream
	}
	if out != nil {
		if p.output, err = json.Marshal(out); err != nil {
			return nil, fmt.Errorf("an output must be JSON: %w", err)
		}
	}
	for _, c := range o.Stream {
		b, err := json.Marshal(c)
		if err != nil {
			return nil, fmt.Errorf("a chunk must be JSON: %w", err)
		}
		p.chunks = append(p.chunks, b)
	}
	return p, nil
}

// next returns the outcome for an input.
func (b *outcomeList) next(input []byte) (*page, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bad != nil {
		return nil, b.bad
	}
	var last *page
	var near []string
	for _, p := range b.list {
		if d := p.when.compare("input", input); len(d) > 0 {
			if near == nil || len(d) < len(near) {
				near = d
			}
			continue
		}
		if p.used < max(p.Times, 1) {
			p.used++
			return p, nil
		}
		last = p
	}
	if last != nil && last.Times == 0 {
		return last, nil
	}
	switch {
	case len(b.list) == 0:
		return nil, fmt.Errorf("double: endpoint %q has no outcome in its script", b.endpoint)
	case last != nil:
		return nil, fmt.Errorf("double: endpoint %q: the outcomes of its script for this input are used up", b.endpoint)
	}
	return nil, fmt.Errorf("double: endpoint %q: no outcome of its script is for this input; nearest: %s", b.endpoint, near[0])
}

// Work does what the script says.
func (b *outcomeList) Work(ctx context.Context, t *serverless.Task) ([]byte, error) {
	p, err := b.next(t.Input)
	if err != nil {
		return nil, err
	}
	if err := b.sleep(ctx, p.After); err != nil {
		return nil, err
	}
	for i, c := range p.chunks {
		if i > 0 {
			if err := b.sleep(ctx, p.Every); err != nil {
				return nil, err
			}
		}
		if err := t.Emit(ctx, c); err != nil {
			return nil, err
		}
	}
	switch {
	case p.Hang:
		b.hang(ctx)
		return nil, context.Cause(ctx)
	case p.Fail != "":
		return nil, &serverless.Failure{Text: p.Fail, Output: p.output}
	}
	return p.output, nil
}

package serverlesstest

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podyard/podyard/serverless/queue"
)

// A Walk makes random moves on a queue and on a Model and compares their answers.
type Walk struct {
	Queue queue.JobQueue // empty
	Steps int
	// Batch is the most jobs that a step submits, claims or ends at once. Default 8.
	Batch int
	// Draw returns a number from 0 to n-1. The walk is a function of what it returns, so a
	// seed replays it and a property tester can make it shorter.
	Draw func(n int) int
}

// Run makes the walk. An error says at which step the queue and the model differ, and how.
func (c Walk) Run(ctx context.Context) error {
	w := &walker{Walk: c, now: start, tokens: map[queue.Token]bool{}, rules: map[string]*queue.Rules{}, lifted: map[string]queue.Instant{}}
	if w.Batch == 0 {
		w.Batch = 8
	}
	for i := range w.Steps {
		s := w.choose()
		if err := s.run(w, ctx); err != nil {
			return fmt.Errorf("serverlesstest: step %d of the walk, %s at %d: %w", i, s.name, w.now, err)
		}
	}
	if err := w.end(ctx); err != nil {
		return fmt.Errorf("serverlesstest: end of the walk, after %d steps: %w", w.Steps, err)
	}
	return nil
}

// A walker is a walk in progress.
type walker struct {
	Walk
	model   Model
	now     queue.Instant
	made    int
	refs    []queue.Ref // of jobs that were there when they were last looked at
	tokens  map[queue.Token]bool
	sent    []leasedDelivery
	rules   map[string]*queue.Rules  // by endpoint
	lifted  map[string]queue.Instant // by endpoint: until when the holds of keys that were made are lifted
	limited bool                     // there are budgets
	opened  int                      // Reopened.Openings when the model was last asked
}

// Reopened is a queue that may be opened again between two calls. It may then have forgotten who
// was served last.
type Reopened interface{ Openings() int }

// A leasedDelivery is a delivery as the queue and the model leased it.
type leasedDelivery struct{ queue, model queue.Delivery }

// A walkStep is a kind of step. weight says how often the walk takes it.
type walkStep struct {
	name   string
	weight int
	run    func(w *walker, ctx context.Context) error
}

func (w *walker) choose() walkStep {
	steps := walkSteps()
	total := 0
	for _, s := range steps {
		total += s.weight
	}
	n := w.Draw(total)
	for _, s := range steps {
		if n -= s.weight; n < 0 {
			return s
		}
	}
	return steps[0]
}

func walkSteps() []walkStep {
	return []walkStep{
		{"submit", 6, (*walker).submit},
		{"submit again", 1, (*walker).submitAgain},
		{"claim", 6, (*walker).claim},
		{"op", 16, (*walker).op},
		{"ops", 4, (*walker).ops},
		{"hold", 3, (*walker).hold},
		{"drain", 3, (*walker).drain},
		{"purge", 1, (*walker).purge},
		{"change rules", 1, (*walker).changeRules},
		{"change budgets", 1, (*walker).changeLimits},
		{"deliver", 2, (*walker).deliver},
		{"record", 2, (*walker).record},
		{"read", 2, (*walker).read},
		{"drop dead letters", 1, (*walker).dropDead},
		{"pass time", 6, (*walker).advance},
		{"sweep", 2, (*walker).sweep},
		{"compare all", 2, (*walker).compareAll},
	}
}

// compared leaves out what a queue may choose: tokens, Seq but for its order, and how early Free is.
var compared = cmp.Options{
	cmpopts.EquateEmpty(), cmpopts.EquateErrors(),
	cmpopts.IgnoreFields(queue.State{}, "Token", "Seq"),
	cmpopts.IgnoreFields(queue.Stats{}, "LastSeq", "Free"),
	cmpopts.IgnoreFields(queue.Delivery{}, "Token"),
	cmpopts.IgnoreFields(queue.Attempt{}, "Token"),
}

func mismatch(what string, model, queue any) error {
	if d := cmp.Diff(model, queue, compared); d != "" {
		return fmt.Errorf("%s (-model +queue):\n%s", what, d)
	}
	return nil
}

// compareBoth asks the queue and the model and compares their answers. A lookup that fails must
// fail alike.
func compareBoth[T any](w *walker, what string, ask func(q queue.JobQueue) (T, error)) (queue, model T, err error) {
	queue, qe := ask(w.Queue)
	if r, ok := w.Queue.(Reopened); ok && r.Openings() != w.opened {
		w.opened = r.Openings()
		w.model.forgetTurns()
	}
	model, me := ask(&w.model)
	if (qe == nil) != (me == nil) || qe != nil && !errors.Is(qe, me) {
		return queue, model, fmt.Errorf("%s = %w, want %w as of the model", what, orNone(qe), orNone(me))
	}
	return queue, model, mismatch(what, model, queue)
}

var errNone = errors.New("no error")

func orNone(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

// pick is a job that is there, by the model.
func (w *walker) pick(ctx context.Context) (j queue.Job, ok bool) {
	for len(w.refs) > 0 {
		i := w.Draw(len(w.refs))
		if j, err := w.model.Get(ctx, w.now, w.refs[i]); err == nil {
			return j, true
		}
		w.refs[i] = w.refs[len(w.refs)-1]
		w.refs = w.refs[:len(w.refs)-1]
	}
	return queue.Job{}, false
}

// drawCount draws a number from 1 to Batch, mostly a small one.
func (w *walker) drawCount() int {
	if w.Draw(3) > 0 {
		return 1 + w.Draw(min(w.Batch, 4))
	}
	return 1 + w.Draw(w.Batch)
}

func (w *walker) endpoint() string { return [...]string{"a", "b", "c"}[w.Draw(3)] }
func (w *walker) owner() string    { return [...]string{"", "x", "y"}[w.Draw(3)] }

func (w *walker) worker() queue.WorkerID {
	return [...]queue.WorkerID{"v", "w"}[w.Draw(2)]
}

// drawSpan draws a time in ms: none to some days.
func (w *walker) drawSpan() queue.Instant {
	widest := [...]int{1, 5, 100, lease, 2 * lease, exec, keep, ttl, 7 * ttl}
	return queue.Instant(w.Draw(widest[w.Draw(len(widest))] + 1))
}

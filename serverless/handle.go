package serverless

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/podyard/podyard/problem"
)

// A Handler is an endpoint whose jobs a Go function does, typed both ways: Submit and Do take an
// In, and Do returns an Out. Create one with Handle or HandleTask. It is safe for concurrent use.
type Handler[In, Out any] struct {
	service  *Service
	endpoint string
	owner    string
}

// Handle makes f the worker of an endpoint, and creates the endpoint if it does not exist, shared by
// all users. Clients elsewhere submit to it by its id, as to any other endpoint. f is called as by
// JSON. opts are as for Serve, and may be nil. HandleTask is for a function that reports progress.
//
// Nothing runs until ServeHandlers does; server.Server.Run calls it. After that Handle returns an error.
// It also returns one if an In is not a JSON object, such as a string or a time.Time, because the input of a
// job is one, or if an Out cannot be JSON; and the errors of EnsureEndpoint. ctx is for the creation.
func Handle[In, Out any](ctx context.Context, s *Service, endpoint string, f func(context.Context, In) (Out, error), opts *ServeOptions) (*Handler[In, Out], error) {
	return HandleTask(ctx, s, endpoint, func(ctx context.Context, t *JSONTask[In]) (Out, error) { return f(ctx, t.Input) }, opts)
}

// HandleTask is Handle for a function that gets the whole task, as that of a JSONWorker: it can report
// progress, stream, and see which attempt this is.
func HandleTask[In, Out any](ctx context.Context, s *Service, endpoint string, f func(context.Context, *JSONTask[In]) (Out, error), opts *ServeOptions) (*Handler[In, Out], error) {
	if err := checkObject(reflect.TypeFor[In]()); err != nil {
		return nil, fmt.Errorf("serverless: handle %q: the input: %w", endpoint, err)
	}
	if _, err := json.Marshal(*new(Out)); err != nil {
		return nil, fmt.Errorf("serverless: handle %q: the output: %s", endpoint, plain(err))
	}
	if err := s.EnsureEndpoint(ctx, endpoint); err != nil {
		return nil, fmt.Errorf("serverless: handle %q: %w", endpoint, err)
	}
	if err := s.handlers.add(handled{endpoint, JSONWorker[In, Out]{Func: f}, opts}); err != nil {
		return nil, fmt.Errorf("serverless: handle %q: %w", endpoint, err)
	}
	return &Handler[In, Out]{service: s, endpoint: endpoint}, nil
}

// checkObject returns an error if a value of t is never a JSON object. A type that encodes itself is
// asked what its zero value becomes.
func checkObject(t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	b, err := json.Marshal(reflect.Zero(t).Interface())
	switch {
	case err != nil:
		return fmt.Errorf("%s", plain(err))
	case b[0] == '{', string(b) == "null" && t.Kind() == reflect.Map:
		return nil
	}
	return fmt.Errorf("%v is %s and not an object in JSON: use a struct or a map", t, kindOf(b))
}

// kindOf says what a JSON value is.
func kindOf(b []byte) string {
	switch b[0] {
	case '"':
		return "a string"
	case '[':
		return "an array"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null or anything"
	}
	return "a number"
}

// As returns the Handler for a user: the jobs that it submits are the user's, who may have budgets, sees
// them over the API, and takes turns with others. The jobs of the Handler that Handle returns belong to nobody.
func (h *Handler[In, Out]) As(owner string) *Handler[In, Out] {
	return &Handler[In, Out]{h.service, h.endpoint, owner}
}

// Endpoint returns the id of the endpoint.
func (h *Handler[In, Out]) Endpoint() string { return h.endpoint }

// Request returns the Request that Submit would submit, for a program that wants more of the job: a
// priority, a retry policy, a webhook.
func (h *Handler[In, Out]) Request(in In) (Request, error) {
	b, err := encode("input", in)
	if err != nil {
		return Request{}, problem.Newf(problem.Invalid, "serverless: submit to %q: %v", h.endpoint, err)
	}
	if string(b) == "null" { // a nil map or pointer
		b = []byte("{}")
	}
	return Request{Input: b}, nil
}

// Submit submits a job and returns it as it is in the queue, where it stays until it has ended, over a
// restart of the program too if the queue is durable. Errors are those of Service.Submit.
func (h *Handler[In, Out]) Submit(ctx context.Context, in In) (Job, error) {
	r, err := h.Request(in)
	if err != nil {
		return Job{}, err
	}
	return h.service.Submit(ctx, h.owner, h.endpoint, r)
}

// SubmitTx is Submit in a transaction of the caller on the database of the queue: the job is there exactly
// if the transaction commits. tx and errors are those of Service.SubmitTx.
func (h *Handler[In, Out]) SubmitTx(ctx context.Context, tx any, in In) (Job, error) {
	r, err := h.Request(in)
	if err != nil {
		return Job{}, err
	}
	return h.service.SubmitTx(ctx, tx, h.owner, h.endpoint, r)
}

// Do submits a job, waits until it has ended, and returns its output. A job that ended without one is a
// *JobError. When ctx ends, Do returns its cause and the job goes on; whoever wants to find it again uses
// Submit and Result.
func (h *Handler[In, Out]) Do(ctx context.Context, in In) (out Out, err error) {
	r, err := h.Request(in)
	if err != nil {
		return out, err
	}
	j, err := h.service.SubmitAndWait(ctx, h.owner, h.endpoint, r)
	if err != nil {
		return out, err
	}
	return h.result(ctx, j)
}

// Result waits until a job has ended, and returns its output, as Do does.
func (h *Handler[In, Out]) Result(ctx context.Context, id JobID) (out Out, err error) {
	j, err := h.service.Wait(ctx, h.owner, Ref{Endpoint: h.endpoint, ID: id}, MaxWait)
	if err != nil {
		return out, err
	}
	return h.result(ctx, j)
}

func (h *Handler[In, Out]) result(ctx context.Context, j Job) (out Out, err error) {
	for !j.Status.Terminal() {
		if ctx.Err() != nil {
			return out, fmt.Errorf("serverless: job %s of %q goes on: %w", j.ID, h.endpoint, context.Cause(ctx))
		}
		if j, err = h.service.Wait(ctx, h.owner, j.Ref, MaxWait); err != nil {
			return out, err
		}
	}
	if j.Status != Completed {
		return out, &JobError{Ref: j.Ref, Status: j.Status, Text: j.ErrorText()}
	}
	if len(j.Output) > 0 {
		if err := json.NewDecoder(bytes.NewReader(j.Output)).Decode(&out); err != nil {
			return out, fmt.Errorf("serverless: output of job %s of %q: %s", j.ID, h.endpoint, plain(err))
		}
	}
	return out, nil
}

// A JobError is the end of a job without an output.
type JobError struct {
	Ref

	Status Status
	Text   string // what the worker or the service said; may be empty
}

func (e *JobError) Error() string {
	text := fmt.Sprintf("serverless: job %s of %q is %s", e.ID, e.Endpoint, e.Status)
	if e.Text != "" {
		text += ": " + e.Text
	}
	return text
}

// A handled is a call of Handle or HandleTask.
type handled struct {
	endpoint string
	worker   Worker
	opts     *ServeOptions
}

// handlers are the calls of Handle, until ServeHandlers takes them.
type handlers struct {
	mu    sync.Mutex
	list  []handled
	taken bool
}

var (
	errServed = errors.New("the service works already: call Handle before it runs")
	errTwice  = errors.New("the endpoint has a function already")
)

func (h *handlers) add(f handled) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.taken {
		return errServed
	}
	for _, other := range h.list {
		if other.endpoint == f.endpoint {
			return errTwice
		}
	}
	h.list = append(h.list, f)
	return nil
}

// take returns the calls, once.
func (h *handlers) take() []handled {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken = true
	list := h.list
	h.list = nil
	return list
}

// ServeHandlers runs the functions of Handle until ctx ends, each as Serve does, and then waits for
// their jobs as Serve does. It returns nil at once if there are none, and an error if one of them cannot be
// served; then all end. A server.Server calls it. Without one, run it beside Run. defaults fills
// in what the options of Handle do not set; nil: the defaults of Serve.
func (s *Service) ServeHandlers(ctx context.Context, defaults *ServeOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	list := s.handlers.take()
	ends := make(chan error, len(list))
	for _, f := range list {
		go func() { ends <- s.Serve(ctx, f.endpoint, f.worker, f.opts.or(defaults)) }()
	}
	var errs []error
	for range list {
		if err := <-ends; err != nil {
			errs = append(errs, err)
			cancel()
		}
	}
	return errors.Join(errs...)
}

// or returns o with what it does not set from other. Both may be nil.
func (o *ServeOptions) or(other *ServeOptions) *ServeOptions {
	all := ServeOptions{}
	if o != nil {
		all = *o
	}
	if other != nil {
		if all.Concurrency == 0 {
			all.Concurrency = other.Concurrency
		}
		if all.Drain == 0 {
			all.Drain = other.Drain
		}
	}
	return &all
}

package serverless_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

type said struct {
	Text string `json:"text"`
}

// handling returns a service, and a function that runs it with what was handled until the test ends.
func handling(t *testing.T) (s *serverless.Service, begin func()) {
	t.Helper()
	s = serverless.New(memory.NewJobs(), memory.NewEndpoints(), nil)
	return s, func() {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		ran, served := make(chan error, 1), make(chan error, 1)
		go func() { ran <- s.Run(ctx) }()
		go func() { served <- s.ServeHandlers(ctx, nil) }()
		t.Cleanup(func() {
			cancel()
			if err := errors.Join(<-ran, <-served); err != nil {
				t.Error(err)
			}
		})
	}
}

func handle[In, Out any](t *testing.T, s *serverless.Service, endpoint string, f func(context.Context, In) (Out, error)) *serverless.Handler[In, Out] {
	t.Helper()
	h, err := serverless.Handle(t.Context(), s, endpoint, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func shout(_ context.Context, in said) (said, error) { return said{strings.ToUpper(in.Text)}, nil }

func TestAFunctionThatIsHandledIsTypedBothWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, begin := handling(t)
		h := handle(t, s, "shout", shout)
		early, err := h.Submit(t.Context(), said{"before it runs"})
		if err != nil || early.Status != serverless.InQueue {
			t.Fatalf("a submit before the start is %v (%v), want in the queue", early.Status, err)
		}
		begin()
		if out, err := h.Result(t.Context(), early.ID); err != nil || out.Text != "BEFORE IT RUNS" {
			t.Errorf("Result = %+v, %v", out, err)
		}
		if out, err := h.Do(t.Context(), said{"a < b"}); err != nil || out.Text != "A < B" {
			t.Errorf("Do = %+v, %v", out, err)
		}
		j, err := h.As("alice").Submit(t.Context(), said{"mine"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), "bob", j.Ref); !errors.Is(err, serverless.ErrNotFound) {
			t.Errorf("another user gets alice's job: %v", err)
		}
		if out, err := h.As("alice").Result(t.Context(), j.ID); err != nil || out.Text != "MINE" {
			t.Errorf("Result for alice = %+v, %v", out, err)
		}
	})
}

// A function that gets the whole task is typed both ways, too, and can say how far it is.
func TestAFunctionThatGetsTheTaskReportsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, begin := handling(t)
		goOn := make(chan struct{})
		h, err := serverless.HandleTask(t.Context(), s, "shout", func(ctx context.Context, task *serverless.JSONTask[said]) (said, error) {
			if err := task.Progress(ctx, map[string]int{"attempt": task.Attempt}); err != nil {
				return said{}, err
			}
			<-goOn
			return shout(ctx, task.Input)
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		begin()
		j, err := h.Submit(t.Context(), said{"slowly"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if j, err := s.Get(t.Context(), "", j.Ref); err != nil || string(j.Output) != `{"attempt":1}` {
			t.Errorf("while it runs, the job has the output %s (%v), want what the function has reported", j.Output, err)
		}
		close(goOn)
		if out, err := h.Result(t.Context(), j.ID); err != nil || out.Text != "SLOWLY" {
			t.Errorf("Result = %+v, %v", out, err)
		}
		if _, err := h.SubmitTx(t.Context(), nil, said{"in memory"}); !errors.Is(err, queue.ErrNoTx) {
			t.Errorf("SubmitTx to a queue without transactions = %v, want %v", err, queue.ErrNoTx)
		}
	})
}

// The input of a job is a JSON object, so what can never be one is refused before there is a job.
func TestHandleRefusesInputsThatAreNoObjects(t *testing.T) {
	s, _ := handling(t)
	for name, err := range map[string]error{
		"string":   handleError[string](t, s),
		"array":    handleError[[]int](t, s),
		"time":     handleError[time.Time](t, s), // a struct that is a string in JSON
		"anything": handleError[any](t, s),
		"raw":      handleError[json.RawMessage](t, s),
		"channel":  handleError[struct{ C chan int }](t, s),
	} {
		if err == nil || !strings.Contains(err.Error(), `serverless: handle "no"`) {
			t.Errorf("%s: Handle = %v, want an error that names the endpoint", name, err)
		}
	}
	if _, err := s.Endpoint(t.Context(), "no"); !errors.Is(err, serverless.ErrNoEndpoint) {
		t.Errorf("a refused Handle has made the endpoint (%v)", err)
	}
	for name, err := range map[string]error{
		"map": handleErrorOn[map[string]int](t, s, "map"), "pointer": handleErrorOn[*said](t, s, "pointer"),
		"struct": handleErrorOn[struct{}](t, s, "struct"), "numbered": handleErrorOn[map[int]bool](t, s, "numbered"),
	} {
		if err != nil {
			t.Errorf("%s: Handle = %v", name, err)
		}
	}
	if _, err := serverless.Handle(t.Context(), s, "out", func(context.Context, said) (chan int, error) { return nil, nil }, nil); err == nil {
		t.Error("an output that is no JSON is taken")
	}
}

func handleError[In any](t *testing.T, s *serverless.Service) error {
	t.Helper()
	return handleErrorOn[In](t, s, "no")
}

func handleErrorOn[In any](t *testing.T, s *serverless.Service, endpoint string) error {
	t.Helper()
	_, err := serverless.Handle(t.Context(), s, endpoint, func(context.Context, In) (int, error) { return 0, nil }, nil)
	return err
}

func TestANilMapIsSubmittedAsTheEmptyObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, begin := handling(t)
		count := handle(t, s, "count", func(_ context.Context, in map[string]int) (int, error) { return len(in), nil })
		begin()
		if n, err := count.Do(t.Context(), nil); err != nil || n != 0 {
			t.Errorf("Do(nil) = %d, %v", n, err)
		}
	})
}

func TestDoOfAJobThatFailsIsAJobErrorWithItsText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, begin := handling(t)
		h := handle(t, s, "fail", func(context.Context, said) (int, error) { return 0, errors.New("no paper") })
		begin()
		_, err := h.Do(t.Context(), said{})
		failed := (*serverless.JobError)(nil)
		if !errors.As(err, &failed) {
			t.Fatalf("Do = %v, want a JobError", err)
		}
		if failed.Status != serverless.Failed || failed.Text != "no paper" || failed.Endpoint != "fail" {
			t.Errorf("the error is %+v", failed)
		}
	})
}

func TestAJobGoesOnWhenItsCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, begin := handling(t)
		started := make(chan string, 1)
		slow := handle(t, s, "slow", func(_ context.Context, in said) (string, error) {
			started <- in.Text
			time.Sleep(8 * time.Minute)
			return "done " + in.Text, nil
		})
		begin()
		ctx, leave := context.WithCancelCause(t.Context())
		gone := errors.New("the caller went home")
		go func() { <-started; leave(gone) }()
		if _, err := slow.Do(ctx, said{"a"}); !errors.Is(err, gone) {
			t.Fatalf("Do = %v, want the cause of the end of its context", err)
		}
		list, err := s.Requests(t.Context(), "", "slow", serverless.RequestsQuery{Limit: 10})
		if err != nil || len(list.Jobs) != 1 {
			t.Fatalf("Requests = %+v, %v, want the job", list, err)
		}
		if out, err := slow.Result(t.Context(), list.Jobs[0].ID); err != nil || out != "done a" {
			t.Errorf("Result = %q, %v, want what a job of eight minutes returns", out, err)
		}
	})
}

func TestHandleAfterTheStartOrTwiceIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, begin := handling(t)
		handle(t, s, "shout", shout)
		if _, err := serverless.Handle(t.Context(), s, "shout", shout, nil); err == nil {
			t.Error("a second function for an endpoint is taken")
		}
		begin()
		synctest.Wait()
		if _, err := serverless.Handle(t.Context(), s, "late", shout, nil); err == nil {
			t.Error("a function that nobody would call is taken")
		}
	})
}

// One that cannot be served ends all: a program sees it at the start, and not by jobs that wait.
func TestServeHandlersReturnsWhatCannotBeServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eps := memory.NewEndpoints()
		s := serverless.New(memory.NewJobs(), eps, nil)
		handle(t, s, "shout", shout)
		handle(t, s, "other", shout)
		if err := eps.Delete(t.Context(), "other"); err != nil {
			t.Fatal(err)
		}
		if err := s.ServeHandlers(t.Context(), nil); !errors.Is(err, serverless.ErrNoEndpoint) {
			t.Errorf("ServeHandlers = %v, want ErrNoEndpoint", err)
		}
	})
}

package serverless_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
)

// shop is a service on an endpoint "shop" that w works for until ctx ends.
func shop(ctx context.Context, w serverless.Worker) *serverless.Service {
	jobs := serverless.New(memory.NewJobs(), memory.NewEndpoints(), nil)
	if err := jobs.EnsureEndpoint(ctx, "shop"); err != nil {
		log.Fatal(err)
	}
	go jobs.Run(ctx)
	if w != nil {
		go jobs.Serve(ctx, "shop", w, nil)
	}
	return jobs
}

// A JSONWorker streams what it has so far, and refuses members that it does not know.
func ExampleJSONWorker() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type prompt struct {
		Text string `json:"text"`
	}
	jobs := shop(ctx, serverless.JSONWorker[prompt, int]{
		Strict: true,
		Func: func(ctx context.Context, t *serverless.JSONTask[prompt]) (int, error) {
			words := strings.Fields(t.Input.Text)
			for _, w := range words {
				if err := t.Emit(ctx, w); err != nil {
					return 0, err
				}
			}
			return len(words), nil
		},
	})
	j, err := jobs.SubmitAndWait(ctx, "ann", "shop", serverless.Request{Input: []byte(`{"text":"two words"}`)})
	fmt.Println(j.Status, string(j.Output), err)
	j, err = jobs.SubmitAndWait(ctx, "ann", "shop", serverless.Request{Input: []byte(`{"txet":"two words"}`)})
	fmt.Println(j.Status, j.Error, err)
	// Output:
	// COMPLETED 2 <nil>
	// FAILED input: unknown field "txet" <nil>
}

// A Failure says what there is in spite of it.
func ExampleFailure() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	jobs := shop(ctx, serverless.WorkerFunc(func(context.Context, *serverless.Task) ([]byte, error) {
		return nil, &serverless.Failure{Output: []byte(`{"pages":3}`), Text: "the printer is out of paper"}
	}))
	j, err := jobs.SubmitAndWait(ctx, "ann", "shop", serverless.Request{Input: []byte(`{}`)})
	fmt.Println(j.Status, string(j.Output), j.Error, err)
	// Output: FAILED {"pages":3} the printer is out of paper <nil>
}

// Progress is the interim output of a job that runs, and a context ends when its user
// cancels it.
func ExampleTask_Progress() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	half, stopped := make(chan bool), make(chan error)
	jobs := shop(ctx, serverless.WorkerFunc(func(ctx context.Context, t *serverless.Task) ([]byte, error) {
		if err := t.Progress(ctx, []byte(`{"percent":50}`)); err != nil {
			return nil, err
		}
		close(half)
		<-ctx.Done()
		stopped <- context.Cause(ctx)
		return nil, ctx.Err()
	}))
	j, err := jobs.Submit(ctx, "ann", "shop", serverless.Request{Input: []byte(`{}`)})
	if err != nil {
		log.Fatal(err)
	}
	<-half
	j, _ = jobs.Get(ctx, "ann", j.Ref)
	fmt.Println(j.Status, string(j.Output))
	j, _ = jobs.Cancel(ctx, "ann", j.Ref)
	fmt.Println(j.Status, <-stopped)
	// Output:
	// IN_PROGRESS {"percent":50}
	// CANCELLED the job was cancelled
}

// A failed job is run again under the same id.
func ExampleService_Retry() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	tries := 0
	jobs := shop(ctx, serverless.WorkerFunc(func(context.Context, *serverless.Task) ([]byte, error) {
		if tries++; tries == 1 {
			return nil, errors.New("try again later")
		}
		return []byte(`"done"`), nil
	}))
	j, err := jobs.SubmitAndWait(ctx, "ann", "shop", serverless.Request{Input: []byte(`{}`)})
	fmt.Println(j.Status, j.Error, err)
	if j, err = jobs.Retry(ctx, "ann", j.Ref); err == nil {
		j, err = jobs.Wait(ctx, "ann", j.Ref, time.Minute)
	}
	fmt.Println(j.Status, string(j.Output), err)
	// Output:
	// FAILED try again later <nil>
	// COMPLETED "done" <nil>
}

// Jobs of another user are not found, and requests are listed newest first.
func ExampleService_Requests() {
	ctx := context.Background()
	jobs := shop(ctx, nil)
	for _, owner := range []string{"ann", "ann", "bob"} {
		if _, err := jobs.Submit(ctx, owner, "shop", serverless.Request{Input: []byte(`{}`)}); err != nil {
			log.Fatal(err)
		}
	}
	page, err := jobs.Requests(ctx, "ann", "shop", serverless.RequestsQuery{Limit: 1})
	fmt.Println(len(page.Jobs), "of", page.Total, err)
	_, err = jobs.Get(ctx, "bob", page.Jobs[0].Ref)
	fmt.Println(errors.Is(err, serverless.ErrNotFound))
	// Output:
	// 1 of 2 <nil>
	// true
}

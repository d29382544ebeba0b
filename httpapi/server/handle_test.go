package server_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/serverless"
)

// A Store is all that a server needs, and the functions of Handle are workers like those of the
// options: at the end of Run they get the time of Drain for the jobs in progress.
func TestFunctionsOfHandleFinishTheirJobsWhenTheServerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := server.New(t.Context(), &server.Options{Store: memory.New(), Drain: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		began := make(chan bool)
		slow, err := serverless.Handle(t.Context(), s.Services().Jobs, "slow", func(context.Context, struct{}) (string, error) {
			began <- true
			time.Sleep(20 * time.Second)
			return "done", nil
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		j, err := slow.Submit(t.Context(), struct{}{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- s.Run(ctx) }()
		<-began
		end()
		if err := <-ran; err != nil {
			t.Errorf("Run = %v", err)
		}
		if out, err := slow.Result(t.Context(), j.ID); err != nil || out != "done" {
			t.Errorf("the job that ran at the end is %q (%v), want it done", out, err)
		}
	})
}

// A store of the program's own takes the place of one of the Store.
func TestStoresTakeThePlaceOfThoseOfTheStore(t *testing.T) {
	store, mine := memory.New(), memory.NewEndpoints()
	s, err := server.New(t.Context(), &server.Options{Store: store, Stores: server.Stores{Endpoints: mine}})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Services().Jobs.Endpoints(); got != serverless.EndpointStore(mine) {
		t.Errorf("the endpoints are in %T %p, want the store that was given", got, got)
	}
	if s.Services().Pods == nil || s.Services().Accounts == nil {
		t.Errorf("the other services are not those of the Store: %+v", s.Services())
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

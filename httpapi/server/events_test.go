package server_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/server"
)

// A stream of events has the ends of the jobs that were in progress when the server began to
// stop, and then ends itself.
func TestEventsEndAfterTheJobsInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &record{}
		s, err := server.New(t.Context(), &server.Options{Stores: jobsOnly(), API: httpapi.Options{Auth: keys(t)}, Logger: log.logger(), Workers: sleeper})
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		ended := later(func() error { return s.Run(ctx) })
		h := s.Handler()
		synctest.Wait()
		stream := later(func() string { return ask(t, h, "GET", "/v2/sleep/events", "").Body.String() })
		synctest.Wait()
		job := later(func() string { return ask(t, h, "POST", "/v2/sleep/runsync", `{"input":{"ms":3000}}`).Body.String() })
		synctest.Wait()
		end()
		if got := <-job; !strings.Contains(got, "COMPLETED") {
			t.Errorf("the job in progress ends as %s, want COMPLETED", got)
		}
		if got := <-stream; !strings.Contains(got, `"type":"queued"`) || !strings.HasSuffix(got, `"status":"COMPLETED"}`+"\n\n") {
			t.Errorf("the stream is %q, want its last event to be the end of the job", got)
		}
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		log.wantNoTrouble(t)
	})
}

package serverless_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/podyard/podyard/serverless"
)

func TestActionsLeaveTheRequestsOfADraftAlone(t *testing.T) {
	inBatchYard(t, func(t *testing.T, y *batchYard) {
		s, _ := y.server()
		draft := createBatch(t, s, inputs(3))
		started := createBatch(t, s, inputs(2, finalized))
		at := func(n int) serverless.JobID { return serverless.JobID(fmt.Sprintf("%s-%d", draft.ID, n)) }
		for _, action := range []serverless.Action{serverless.StartJobs, serverless.CancelJobs, serverless.RetryJobs, serverless.DeleteJobs} {
			for _, preview := range []bool{true, false} {
				r := serverless.ActionRequest{Action: action, Filter: serverless.JobFilter{Batch: draft.ID}, Preview: preview, Limit: 10}
				got, err := s.ActOnJobs(t.Context(), serverless.AllOwners, "echo", r)
				if err != nil || got.Matched != 0 || got.Done != 0 {
					t.Errorf("%s of a draft (preview %v) = %+v, %v, want no job", action, preview, got, err)
				}
			}
			r := serverless.ActionRequest{Action: action, Filter: serverless.JobFilter{IDs: []serverless.JobID{at(1), "nothere"}}, Limit: 10}
			got, err := s.ActOnJobs(t.Context(), "alice", "echo", r)
			if err != nil || got.Done != 0 || len(got.Failed) != 2 || !strings.Contains(got.Failed[0].Err.Error(), "request of a draft") {
				t.Errorf("%s of a request of a draft by its id = %+v, %v, want a refusal that names the draft", action, got, err)
			}
		}
		wantCounts(t, s, draft.ID, "DRAFT 3 0 0 0")
		if why, err := s.Why(t.Context(), "alice", serverless.Ref{Endpoint: "echo", ID: at(0)}); err != nil || why != "it is in a batch that was not started" {
			t.Errorf("a request of a draft waits because %q, %v", why, err)
		}
		all := serverless.ActionRequest{Action: serverless.CancelJobs, Limit: 10}
		if got, err := s.ActOnJobs(t.Context(), "alice", "echo", all); err != nil || got.Done != 2 {
			t.Errorf("a cancel of all jobs = %+v, %v, want the 2 of the batch that was started", got, err)
		}
		wantCounts(t, s, started.ID, "FINALIZED 2 0 0 2")
		if _, err := s.Batches().Finalize(t.Context(), "alice", "echo", draft.ID); err != nil {
			t.Fatal(err)
		}
		if got, err := s.ActOnJobs(t.Context(), "alice", "echo", all); err != nil || got.Done != 3 {
			t.Errorf("a cancel of all jobs after the start of the draft = %+v, %v, want its 3", got, err)
		}
	})
}

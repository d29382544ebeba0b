package double_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi/apitest"
)

func TestAdvanceEndsBatchesAndSendsTheirSummary(t *testing.T) {
	s := apitest.Start(t)
	s.Handle("echo", echo)
	s.Queue("slow")
	done := want(t, s, 200, "POST", "/v2/echo/batch", `{"requests":[{"input":{"a":1}},{"input":{"a":2}}],"finalize":true}`).field("id")
	short := want(t, s, 200, "POST", "/v2/slow/batch", `[{"input":{},"policy":{"ttl":60000}}]`).field("id")
	draft := want(t, s, 200, "POST", "/v2/slow/batch", `[{"input":{}}]`).field("id")
	s.Advance(time.Hour)
	want(t, s, 200, "POST", "/v2/slow/batch/"+short+"/finalize", "")
	if got := want(t, s, 200, "GET", "/v2/echo/batch/"+done, "").body; !strings.Contains(got, `"requestCompleted":2`) {
		t.Errorf("the batch is %s, want two that are completed", got)
	}
	s.Advance(24 * time.Hour)
	if got := want(t, s, 200, "GET", "/v2/slow/batch/"+short, "").body; !strings.Contains(got, `"requestFailed":1`) {
		t.Errorf("the batch is %s, want that its request expired", got)
	}
	want(t, s, 404, "GET", "/v2/slow/batch/"+draft, "")
	if got := want(t, s, 200, "GET", "/v2/slow/health", "").body; !strings.Contains(got, `"inQueue":0`) {
		t.Errorf("health = %s, want no job", got)
	}
	got := want(t, s, 200, "GET", fmt.Sprintf("/v2/echo/batch/%s/requests", done), "").body
	if strings.Count(got, `"status":"COMPLETED"`) != 2 || strings.Contains(got, "output") {
		t.Errorf("requests = %s, want their statuses without results", got)
	}
}

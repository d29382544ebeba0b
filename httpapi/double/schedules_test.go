package double_test

import (
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi/apitest"
)

func TestAdvanceSubmitsTheJobsOfSchedules(t *testing.T) {
	s := apitest.Start(t)
	s.Handle("echo", echo)
	s.Queue("slow")
	daily := want(t, s, 201, "POST", "/v2/echo/schedules", `{"cron":"0 */6 * * *","run":{"input":{"a":1}}}`).field("id")
	waits := want(t, s, 201, "POST", "/v2/slow/schedules", `{"cron":"0 * * * *","run":{"input":{}},"overlap":"queue"}`).field("id")
	s.Advance(24 * time.Hour)
	got := want(t, s, 200, "GET", "/v2/echo/schedules/"+daily, "").body
	if n := strings.Count(got, `"outcome":"submitted"`); n != 4 {
		t.Errorf("a day of a schedule has %d jobs, want 4: %s", n, got)
	}
	got = want(t, s, 200, "GET", "/v2/slow/schedules/"+waits, "").body
	if n := strings.Count(got, `"outcome":"submitted"`); n > 1 || !strings.Contains(got, `"outcome":"skipped"`) {
		t.Errorf("a job that does not end is followed by others: %s", got)
	}
	if got := want(t, s, 200, "GET", "/v2/slow/health", "").body; !strings.Contains(got, `"inQueue":1`) {
		t.Errorf("health = %s, want one job", got)
	}
}

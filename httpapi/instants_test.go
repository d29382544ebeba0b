package httpapi_test

import (
	"strings"
	"testing"

	"github.com/podyard/podyard/httpapi/audit"
)

// Each place where a user gives a time takes the same times. The zero time of Go is not "no time": a
// filter with it would select everything. One that is in the year 10000 in UTC could not be written
// back, and those that are centuries away must not wrap around.
func TestTimesOfUsersAreTakenOrRefusedInOneWay(t *testing.T) {
	const far = " must be after 0001-01-01T00:00:00Z and before the year 10000"
	places := map[string]struct{ method, path, body, name string }{
		"startAfter of a run":   {"POST", "/v2/idle/run", `{"input":{},"queue":{"startAfter":"AT"}}`, "/queue/startAfter:"},
		"before of an action":   {"POST", "/v2/idle/actions", `{"action":"cancel","filter":{"before":"AT"}}`, "/filter/before:"},
		"after of an action":    {"POST", "/v2/idle/actions", `{"action":"cancel","filter":{"after":"AT"}}`, "/filter/after:"},
		"expires of a key":      {"POST", "/v2/account/keys", `{"scopes":["pods:read"],"expires":"AT"}`, "/expires:"},
		"startTime of a report": {"GET", "/v2/billing/pods?startTime=AT&endTime=9999-12-31T00:00:00Z", "", "startTime"},
		"endTime of a report":   {"GET", "/v2/billing/pods?startTime=2000-01-01T00:00:00Z&endTime=AT", "", "endTime"},
		"before of the audit":   {"GET", "/v2/admin/audit?before=AT", "", "before"},
	}
	for what, p := range places {
		t.Run(what, func(t *testing.T) {
			audited(t, func(w *testAPI, _ audit.Trail, root string) {
				for at, refused := range map[string]bool{
					"0001-01-01T00:00:00Z": true, "0001-01-01T01:00:00+01:00": true, "0000-01-01T00:00:00Z": true, "9999-12-31T23:59:59-01:00": true,
					"0001-01-01T00:00:01Z": false, "9999-12-31T23:59:59Z": false, "2500-01-01T00:00:00Z": false,
				} {
					in := func(s string) string { return strings.ReplaceAll(s, "AT", strings.ReplaceAll(at, "+", "%2B")) }
					body := strings.ReplaceAll(p.body, "AT", at)
					a := w.call(p.method, in(p.path), body, root)
					said := a.status == 422 && strings.Contains(a.faults(t), p.name+far)
					if said != refused || a.status >= 500 {
						t.Errorf("%s = %d %s, want %v that it is refused as out of range", at, a.status, a.body, refused)
					}
				}
			})
		})
	}
}

func TestAnActionWithTimesFarAwaySelectsWhatTheySay(t *testing.T) {
	bubble(t, func(w *testAPI) {
		w.want(200, "POST", "/v2/idle/run", `{"input":{}}`)
		for filter, want := range map[string]string{
			`"before":"0001-01-01T00:00:01Z"`: "0", `"after":"0001-01-01T00:00:01Z"`: "1",
			`"before":"9999-12-31T23:59:59Z"`: "1", `"after":"9999-12-31T23:59:59Z"`: "0",
		} {
			if got := w.want(200, "POST", "/v2/idle/actions", `{"action":"cancel","preview":true,"filter":{`+filter+`}}`).body; !strings.Contains(got, `"matched":`+want) {
				t.Errorf("%s: %s, want %s jobs matched", filter, got, want)
			}
		}
	})
}

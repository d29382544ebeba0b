package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// A worker says what becomes of its job beside the output, or in an output that is an object, as a handler
// of the stock SDK returns it. Every other output is an output.
func TestAWorkerSaysWhatBecomesOfItsJob(t *testing.T) {
	for name, c := range map[string]struct{ body, status, has string }{
		"snooze beside the output":          {`{"podyard":{"snooze":60000}}`, "IN_QUEUE", `"status":"IN_QUEUE"`},
		"snooze in the output":              {`{"output":{"podyard":{"snooze":60000}}}`, "IN_QUEUE", `"status":"IN_QUEUE"`},
		"snooze with an output":             {`{"output":{"x":1,"podyard":{"snooze":1e3}}}`, "IN_QUEUE", `"status":"IN_QUEUE"`},
		"snooze past the ttl":               {`{"output":{"podyard":{"snooze":86400000}}}`, "FAILED", `snoozed: its worker put the job off past the end of its ttl`},
		"snooze for ever":                   {`{"output":{"podyard":{"snooze":1e300}}}`, "FAILED", `snoozed: its worker put the job off past the end of its ttl`},
		"cancel beside the output":          {`{"podyard":{"cancel":true},"output":1}`, "CANCELLED", `"status":"CANCELLED"`},
		"cancel in the output":              {`{"output":{"podyard":{"cancel":true}}}`, "CANCELLED", `"status":"CANCELLED"`},
		"hold beside the output":            {`{"podyard":{"holdKey":60000},"output":{"x":1}}`, "COMPLETED", `"output":{"x":1}`},
		"hold in the output":                {`{"output":{"x":1,"podyard":{"holdKey":86400000}}}`, "COMPLETED", `"output":{"x":1}`},
		"hold and snooze":                   {`{"output":{"podyard":{"holdKey":1,"snooze":60000}}}`, "IN_QUEUE", `"status":"IN_QUEUE"`},
		"hold and cancel":                   {`{"output":{"podyard":{"cancel":true,"holdKey":60000}}}`, "CANCELLED", `"status":"CANCELLED"`},
		"hold of nothing":                   {`{"output":{"podyard":{"holdKey":0}}}`, "FAILED", `holdKey must be from 1 to 86400000 milliseconds`},
		"hold of more than a day":           {`{"podyard":{"holdKey":86400001}}`, "FAILED", `holdKey must be from 1 to 86400000 milliseconds`},
		"hold that is a text":               {`{"podyard":{"holdKey":"1s"}}`, "FAILED", `/podyard/holdKey: must be an integer`},
		"an output named holdKey":           {`{"output":{"holdKey":1}}`, "COMPLETED", `"output":{"holdKey":1}`},
		"nothing said":                      {`{"output":{"x": 1.50,"podyard":{}}}`, "COMPLETED", `"output":{"x":1.50}`},
		"cancel that is not so":             {`{"output":{"x":1,"podyard":{"cancel":false}}}`, "COMPLETED", `"output":{"x":1}`},
		"null beside the output":            {`{"podyard":null,"output":1}`, "COMPLETED", `"output":1`},
		"an output named snooze":            {`{"output":{"snooze":1}}`, "COMPLETED", `"output":{"snooze":1}`},
		"an output that names podyard":      {`{"output":{"podyard":"x"}}`, "COMPLETED", `"output":{"podyard":"x"}`},
		"an output with podyard deeper":     {`{"output":{"a":{"podyard":{"cancel":true}}}}`, "COMPLETED", `"podyard":{"cancel":true}`},
		"a list with podyard":               {`{"output":[{"podyard":{"cancel":true}}]}`, "COMPLETED", `"podyard":{"cancel":true}`},
		"a failure with podyard":            {`{"error":"no","output":{"podyard":{"cancel":true}}}`, "FAILED", `"error":"no"`},
		"snooze that is too short":          {`{"podyard":{"snooze":999}}`, "FAILED", `snooze must be at least 1000 milliseconds`},
		"snooze of nothing":                 {`{"output":{"podyard":{"snooze":0}}}`, "FAILED", `snooze must be at least 1000 milliseconds`},
		"snooze back":                       {`{"output":{"podyard":{"snooze":-1e300}}}`, "FAILED", `snooze must be at least 1000 milliseconds`},
		"snooze that is null":               {`{"output":{"podyard":{"snooze":null}}}`, "FAILED", `snooze must be at least 1000 milliseconds`},
		"snooze that is a text":             {`{"output":{"podyard":{"snooze":"1m"}}}`, "FAILED", `/podyard/snooze: must be an integer`},
		"cancel that is a number":           {`{"output":{"podyard":{"cancel":1}}}`, "FAILED", `/podyard/cancel: must be true or false`},
		"both":                              {`{"output":{"podyard":{"cancel":true,"snooze":60000}}}`, "FAILED", `snoozed or cancelled, and not both`},
		"something else":                    {`{"output":{"podyard":{"sleep":1}}}`, "FAILED", `/podyard/sleep: unknown property`},
		"a text beside the output":          {`{"podyard":"snooze","output":1}`, "FAILED", `/podyard: must be an object`},
		"a list beside the output":          {`{"podyard":[{"cancel":true}]}`, "FAILED", `/podyard: must be an object`},
		"said twice in a row is the first":  {`{"podyard":{"cancel":true},"output":{"podyard":{"snooze":60000}}}`, "CANCELLED", `"status":"CANCELLED"`},
		"progress is no end, whatever else": {`{"status":"IN_PROGRESS","output":{"podyard":{"cancel":true}}}`, "IN_PROGRESS", `"podyard":{"cancel":true}`},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *testAPI) {
				h, id := w.hand("w1"), w.submit(`{}`)
				h.take()
				h.report("job-done", id, c.body)
				if a := w.statusOf(id); a.field("status") != c.status || !strings.Contains(a.body, c.has) {
					t.Errorf("the job is %s, want %s with %s", a.body, c.status, c.has)
				}
			})
		})
	}
}

func TestASnoozedJobIsTakenAgainAndListsItsLease(t *testing.T) {
	bubble(t, func(w *testAPI) {
		h, id := w.hand("w1"), w.submit(`{}`)
		h.take()
		if a := h.report("job-done", id, `{"output":{"podyard":{"snooze":60000}}}`); a.body != accepted {
			t.Errorf("job-done = %s, want it accepted", a.body)
		}
		advance(time.Minute)
		if again := h.take(); again != id {
			t.Errorf("after a minute the worker gets %q, want %q", again, id)
		}
		past := w.want(http.StatusOK, "GET", "/v2/idle/attempts/"+id, "").body
		for _, want := range []string{`"end":"snoozed"`, `"leaseCount":1`, `"number":1`} {
			if !strings.Contains(past, want) {
				t.Errorf("attempts = %s, want %s", past, want)
			}
		}
		health := w.want(http.StatusOK, "GET", "/v2/idle/health", "").body
		if !strings.Contains(health, `"retried":0`) {
			t.Errorf("health = %s, want nothing retried", health)
		}
	})
}

func TestAHeldKeyIsLiftedByItsEndpoint(t *testing.T) {
	withEndpoints(t, nil, func(w *testAPI) {
		operator, alice := as(operatorFree), as(alicesEndpoints)
		submit := func() string {
			return w.want(http.StatusOK, "POST", "/v2/idle/run", `{"input":{},"queue":{"key":"a"}}`, alice).field("id")
		}
		h, first := w.hand("w1"), submit()
		h.take()
		h.report("job-done", first, `{"output":{"podyard":{"holdKey":3600000}}}`)
		held := submit()
		for _, body := range []string{`{"liftHolds":false}`, `{"paused":false}`} {
			if a := w.want(http.StatusOK, "PATCH", "/v2/serverless/idle/queue", body, operator); !strings.Contains(a.body, `"ready":0,"delayed":0,"blocked":1`) {
				t.Errorf("after %s the queue is %s, want one blocked job", body, a.body)
			}
		}
		if a := w.want(http.StatusOK, "PATCH", "/v2/serverless/idle/queue", `{"liftHolds":true}`, operator); !strings.Contains(a.body, `"ready":1,"delayed":0,"blocked":0`) {
			t.Errorf("liftHolds = %s, want the job ready", a.body)
		}
		if got := h.take(); got != held {
			t.Errorf("after the hold was lifted the worker gets %q, want %q", got, held)
		}
	})
}

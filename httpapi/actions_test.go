package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless"
)

// A done is the answer to an action on many jobs.
type done struct {
	Matched, Done int
	Failed        []struct{ ID, Error string }
	Cursor        *string
}

// act makes an action on the jobs of an endpoint. body has the members.
func (w *testAPI) act(endpoint, body string, headers ...string) (d done) {
	w.t.Helper()
	endpoint, query, _ := strings.Cut(endpoint, "?")
	a := w.want(200, "POST", "/v2/"+endpoint+"/actions?"+query, body, headers...)
	if err := json.Unmarshal([]byte(a.body), &d); err != nil {
		w.t.Fatal(err)
	}
	return d
}

// ran submits a job of an input to echo, and waits until it has ended.
func (w *testAPI) ran(input string) string {
	w.t.Helper()
	id := w.want(200, "POST", "/v2/echo/run", `{"input":`+input+`}`).field("id")
	advance(time.Second)
	return id
}

func (w *testAPI) jobState(endpoint, id string) string {
	w.t.Helper()
	return w.call("GET", "/v2/"+endpoint+"/status/"+id, "").field("status")
}

func (w *testAPI) waiting(n int) (list []string) {
	w.t.Helper()
	for range n {
		list = append(list, w.want(200, "POST", "/v2/idle/run", `{"input":{}}`).field("id"))
	}
	return list
}

func TestAnActionIsDoneOnTheJobsToWhichItApplies(t *testing.T) {
	bubble(t, func(w *testAPI) {
		failed, completed := w.ran(`{"do":"fail"}`), w.ran(`{"do":"echo"}`)
		running := w.want(200, "POST", "/v2/echo/run", `{"input":{"ms":3600000}}`).field("id")
		advance(time.Second)
		if d := w.act("echo", `{"action":"retry","all":true}`); d.Matched != 1 || d.Done != 1 || len(d.Failed) != 0 || d.Cursor != nil {
			t.Errorf("retry of all = %+v, want the one that failed", d)
		}
		advance(time.Second)
		if s := w.jobState("echo", failed); s != "FAILED" {
			t.Errorf("the job that failed again is %s", s)
		}
		later := w.want(200, "POST", "/v2/echo/run", `{"input":{},"queue":{"startAfter":3600000}}`).field("id")
		if d := w.act("echo", `{"action":"start","all":true}`); d.Matched != 1 || d.Done != 1 {
			t.Errorf("start of all = %+v, want the one that is delayed", d)
		}
		advance(time.Second)
		w.act("echo", `{"action":"delete","filter":{"ids":["`+later+`"]}}`)
		w.want(404, "GET", "/v2/echo/status/"+later, "")
		if d := w.act("echo", `{"action":"delete","filter":{"status":["COMPLETED","FAILED"]},"preview":true}`); d.Matched != 2 || d.Done != 0 {
			t.Errorf("preview of a delete = %+v, want two jobs and none done", d)
		}
		if d := w.act("echo", `{"action":"delete","all":true}`); d.Matched != 2 || d.Done != 2 {
			t.Errorf("delete of all = %+v, want the two that have ended", d)
		}
		for _, id := range []string{failed, completed} {
			w.want(404, "GET", "/v2/echo/status/"+id, "")
		}
		if d := w.act("echo", `{"action":"cancel","filter":{"status":["IN_QUEUE"]}}`); d.Matched != 0 {
			t.Errorf("cancel of what waits = %+v, and none waits", d)
		}
		if d := w.act("echo", `{"action":"cancel","all":true}`); d.Done != 1 || w.jobState("echo", running) != "CANCELLED" {
			t.Errorf("cancel of all = %+v, want the job that runs", d)
		}
	})
}

func TestAJobThatAnActionNamesAndCannotHaveIsInFailed(t *testing.T) {
	bubble(t, func(w *testAPI) {
		completed, queued := w.ran(`{"do":"echo"}`), w.waiting(1)[0]
		bobs := w.want(200, "POST", "/v2/echo/run", `{"input":{"ms":3600000}}`, "Authorization: Bearer "+bobKey).field("id")
		for action, want := range map[string]string{
			"cancel": "the job has ended, or a worker has taken it meanwhile", "retry": "only a FAILED or TIMED_OUT job can be retried", "start": "only a delayed job can be started",
		} {
			d := w.act("echo", fmt.Sprintf(`{"action":%q,"filter":{"ids":[%q,%q,"nothere"]}}`, action, completed, bobs))
			if d.Matched != 1 || d.Done != 0 || len(d.Failed) != 3 {
				t.Fatalf("%s = %+v, want three that failed", action, d)
			}
			texts := map[string]string{}
			for _, f := range d.Failed {
				texts[f.ID] = f.Error
			}
			if diff := cmp.Diff(map[string]string{completed: want, bobs: "job not found", "nothere": "job not found"}, texts); diff != "" {
				t.Errorf("%s (-want +got):\n%s", action, diff)
			}
		}
		if d := w.act("idle", fmt.Sprintf(`{"action":"delete","filter":{"ids":[%q]}}`, queued)); len(d.Failed) != 1 || d.Failed[0].Error != "only a job that has ended can be deleted: cancel it first" {
			t.Errorf("delete of a queued job = %+v", d)
		}
		advance(time.Second)
		if s := w.call("GET", "/v2/echo/status/"+bobs, "", "Authorization: Bearer "+bobKey).field("status"); s != "IN_PROGRESS" {
			t.Errorf("the job of bob is %s", s)
		}
	})
}

// Three jobs are submitted a second apart, with the keys a, b and a.
func TestAFilterHasAllItsMembersMatch(t *testing.T) {
	for _, row := range []struct {
		filter string // {n} is the id of job n, {-n} the time n seconds ago
		want   []int
	}{
		{`{"key":"a"}`, []int{0, 2}},
		{`{"key":""}`, nil},
		{`{"key":"a","before":"{-1}"}`, []int{0}},
		{`{"after":"{-1}"}`, []int{1, 2}},
		{`{"before":"{-0}","status":["IN_QUEUE"]}`, []int{0, 1}},
		{`{"after":"{-2}","before":"{-1}"}`, []int{0}},
		{`{"status":["FAILED","COMPLETED"]}`, nil},
		{`{"ids":["{0}","{1}","{0}"],"key":"b"}`, []int{1}},
	} {
		bubble(t, func(w *testAPI) {
			var ids, names []string
			for i, key := range []string{"a", "b", "a"} {
				advance(time.Second)
				ids = append(ids, w.want(200, "POST", "/v2/idle/run", `{"input":{},"queue":{"key":"`+key+`"}}`).field("id"))
				names = append(names, fmt.Sprintf("{%d}", i), ids[i])
			}
			for i := range 3 {
				names = append(names, fmt.Sprintf("{-%d}", i), time.Now().Add(-time.Duration(i)*time.Second).UTC().Format(time.RFC3339Nano))
			}
			filter := strings.NewReplacer(names...).Replace(row.filter)
			if d := w.act("idle", `{"action":"cancel","filter":`+filter+`}`); d.Matched != len(row.want) || d.Done != len(row.want) {
				t.Errorf("%s matches %+v, want %d jobs", row.filter, d, len(row.want))
			}
			for i, id := range ids {
				want := "IN_QUEUE"
				if slices.Contains(row.want, i) {
					want = "CANCELLED"
				}
				if s := w.jobState("idle", id); s != want {
					t.Errorf("after %s job %d is %s, want %s", row.filter, i, s, want)
				}
			}
		})
	}
}

// A call goes on where the one before has ended, and meets no job that was submitted since.
func TestTheCursorOfAnActionFixesItsUpperBound(t *testing.T) {
	bubble(t, func(w *testAPI) {
		old := w.waiting(25)
		d := w.act("idle", `{"action":"cancel","all":true,"limit":10}`)
		if d.Done != 10 || d.Cursor == nil {
			t.Fatalf("the first call = %+v, want 10 jobs and a cursor", d)
		}
		later := w.waiting(3)
		total := d.Done
		for d.Cursor != nil {
			d = w.act("idle", fmt.Sprintf(`{"action":"cancel","all":true,"limit":10,"cursor":%q}`, *d.Cursor))
			total += d.Done
		}
		if total != len(old) {
			t.Errorf("%d jobs were cancelled, want %d", total, len(old))
		}
		for _, id := range old {
			if s := w.jobState("idle", id); s != "CANCELLED" {
				t.Errorf("an old job is %s", s)
			}
		}
		for _, id := range later {
			if s := w.jobState("idle", id); s != "IN_QUEUE" {
				t.Errorf("a later job is %s", s)
			}
		}
	})
}

func TestACursorIsBoundToItsUserPathAndFilter(t *testing.T) {
	bubble(t, func(w *testAPI) {
		w.waiting(3)
		cursor := *w.act("idle", `{"action":"cancel","preview":true,"all":true,"limit":1}`).Cursor
		body := func(members string) string { return fmt.Sprintf(`{%s,"cursor":%q}`, members, cursor) }
		w.want(200, "POST", "/v2/idle/actions", body(`"action":"cancel","preview":true,"all":true,"limit":2`))
		w.want(422, "POST", "/v2/idle/actions", body(`"action":"delete","all":true`))
		w.want(422, "POST", "/v2/idle/actions", body(`"action":"cancel","filter":{"status":["IN_QUEUE"]}`))
		w.want(422, "POST", "/v2/idle/actions", body(`"action":"cancel","filter":{"key":""}`))
		w.want(422, "POST", "/v2/echo/actions", body(`"action":"cancel","all":true`))
		w.want(422, "POST", "/v2/idle/actions", body(`"action":"cancel","all":true`), "Authorization: Bearer "+bobKey)
		w.want(422, "POST", "/v2/idle/actions", fmt.Sprintf(`{"action":"cancel","all":true,"cursor":%q}`, cursor[:len(cursor)-2]))
	})
}

func TestAnOperatorActsOnTheJobsOfAnOwnerOrOfAll(t *testing.T) {
	bubble(t, func(w *testAPI) {
		alices := w.waiting(2)
		bobs := w.want(200, "POST", "/v2/idle/run", `{"input":{}}`, "Authorization: Bearer "+bobKey).field("id")
		root := "Authorization: Bearer " + operatorFree
		if d := w.act("idle", `{"action":"cancel","all":true}`, root); d.Matched != 0 {
			t.Errorf("an operator's own jobs = %+v, want none", d)
		}
		if d := w.act("idle?owner=*", `{"action":"cancel","all":true,"preview":true}`, root); d.Matched != 3 {
			t.Errorf("the jobs of all = %+v, want 3", d)
		}
		w.want(403, "POST", "/v2/idle/actions?owner=bob", `{"action":"cancel","all":true}`)
		a := w.want(200, "POST", "/v2/idle/actions?owner=bob", `{"action":"cancel","all":true}`, root)
		if !strings.Contains(a.body, `"done":1`) {
			t.Errorf("the jobs of bob = %s, want one", a.body)
		}
		if s := w.call("GET", "/v2/idle/status/"+bobs, "", "Authorization: Bearer "+bobKey).field("status"); s != "CANCELLED" {
			t.Errorf("the job of bob is %s", s)
		}
		if s := w.jobState("idle", alices[0]); s != "IN_QUEUE" {
			t.Errorf("the job of alice is %s", s)
		}
	})
}

// The list is as the Terraform provider reads it, in pages that have every job once.
func TestTheJobsOfAnEndpointAreListedInPages(t *testing.T) {
	bubble(t, func(w *testAPI) {
		admin := "Authorization: Bearer " + adminFree
		var want []string
		for i := range 7 {
			id := w.want(200, "POST", "/v2/echo/run", fmt.Sprintf(`{"input":{"n":%d,"ms":10}}`, i), admin).field("id")
			want = append([]string{id}, want...)
		}
		w.want(200, "POST", "/v2/echo/run", `{"input":{}}`) // of alice
		advance(time.Second)
		var got []string
		next := "/v2/serverless/echo/jobs?limit=3&status=COMPLETED"
		for pages := 0; next != ""; pages++ {
			a := w.want(200, "GET", next, "", admin)
			var page struct {
				Jobs []struct {
					ID, Status, CompletedAt, Input, Output string
					DurationMs                             int64
				}
				Cursor string
			}
			if err := json.Unmarshal([]byte(a.body), &page); err != nil {
				t.Fatal(err)
			}
			for _, j := range page.Jobs {
				got = append(got, j.ID)
				if j.Status != "COMPLETED" || j.CompletedAt == "" || j.Input != j.Output || !strings.Contains(j.Input, `"n":`) || j.DurationMs != 10 {
					t.Errorf("a listed job: %+v", j)
				}
			}
			next = nextPage(t, "/v2/serverless/echo/jobs", a)
			if (next == "") != (page.Cursor == "") || next != "" && !strings.Contains(next, "cursor="+url.QueryEscape(page.Cursor)) {
				t.Errorf("the link %q is not to the cursor %q", next, page.Cursor)
			}
			if pages == 1 {
				w.want(422, "GET", strings.Replace(next, "COMPLETED", "FAILED", 1), "", admin)
				w.want(422, "GET", strings.Replace(next, "echo", "idle", 1), "", admin)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the jobs of all pages (-want +got):\n%s", diff)
		}
	})
}

// nextPage returns the address of the header Link, or "". a is an answer to a path.
func nextPage(t *testing.T, path string, a answer) string {
	t.Helper()
	link := a.header.Get("Link")
	if link == "" {
		return ""
	}
	ref, ok := strings.CutSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
	if u, err := url.Parse(ref); !ok || err != nil || u.IsAbs() || !strings.HasPrefix(ref, "?") {
		t.Fatalf("Link: %s", link)
	}
	return path + ref
}

// Payloads bound a page, so that an answer does not grow with its limit.
func TestAPageOfLargeJobsIsShorter(t *testing.T) {
	suite.SkipUnlessLong(t)
	bubble(t, func(w *testAPI) {
		big := `{"input":{"text":"` + strings.Repeat("x", 6<<20) + `"}}`
		for range 5 {
			w.want(200, "POST", "/v2/idle/run", big, "Authorization: Bearer "+adminFree)
		}
		a := w.want(200, "GET", "/v2/serverless/idle/jobs?limit=1000", "", "Authorization: Bearer "+adminFree)
		if n := strings.Count(a.body, `"IN_QUEUE"`); n != 3 {
			t.Errorf("%d jobs of 6 MB in a page, want 3", n)
		}
		b := w.want(200, "GET", nextPage(t, "/v2/serverless/idle/jobs", a), "", "Authorization: Bearer "+adminFree)
		if n := strings.Count(b.body, `"IN_QUEUE"`); n != 2 || nextPage(t, "", b) != "" {
			t.Errorf("%d jobs in the second page, want the other 2", n)
		}
	})
}

// A service that is asked directly refuses what a decoder would.
func TestAnActionThatDoesNotExistIsRefused(t *testing.T) {
	bubble(t, func(w *testAPI) {
		for _, r := range []serverless.ActionRequest{{Action: "purge", Limit: 1}, {Action: serverless.CancelJobs}, {Action: serverless.CancelJobs, Limit: serverless.MaxActionJobs + 1}} {
			if _, err := w.jobs.ActOnJobs(t.Context(), "alice", "idle", r); err == nil {
				t.Errorf("ActOnJobs of %+v = nil, want an error", r)
			}
		}
		if _, err := w.jobs.ActOnJobs(t.Context(), "alice", "nowhere", serverless.ActionRequest{Action: serverless.CancelJobs, Limit: 1}); err == nil {
			t.Error("ActOnJobs on an unknown endpoint = nil, want an error")
		}
	})
}

func TestAFilterSelectsTheRequestsOfABatch(t *testing.T) {
	bubble(t, func(w *testAPI) {
		const requests = `{"requests":[{"input":{}},{"input":{}}],"finalize":true}`
		batch := w.want(200, "POST", "/v2/idle/batch", requests).field("id")
		other := w.want(200, "POST", "/v2/idle/batch", requests).field("id")
		advance(time.Second)
		if d := w.act("idle", `{"action":"cancel","filter":{"batch":"`+batch+`"}}`); d.Matched != 2 || d.Done != 2 {
			t.Errorf("the batch has %+v, want 2 jobs", d)
		}
		for i, want := range []string{"CANCELLED", "CANCELLED", "IN_QUEUE", "IN_QUEUE"} {
			id := fmt.Sprintf("%s-%d", []string{batch, other}[i/2], i%2)
			if s := w.jobState("idle", id); s != want {
				t.Errorf("request %s is %s, want %s", id, s, want)
			}
		}
		for _, none := range []string{"batch_", batch + "-1", "no"} {
			if d := w.act("idle", `{"action":"cancel","filter":{"batch":"`+none+`"}}`); d.Matched != 0 {
				t.Errorf("the batch %q has %+v, want no jobs", none, d)
			}
		}
	})
}

func TestJobsAreFoundAndCancelledByThePrefixOfTheirIDs(t *testing.T) {
	bubble(t, func(w *testAPI) {
		first, other := w.want(200, "POST", "/v2/idle/run", `{"input":{}}`).field("id"), w.want(200, "POST", "/v2/idle/run", `{"input":{}}`).field("id")
		n := 1
		for first[:n] == other[:n] {
			n++
		}
		list := w.want(200, "GET", "/v2/idle/requests?idPrefix="+first[:n], "").body
		if !strings.Contains(list, first) || strings.Contains(list, other) || !strings.Contains(list, `"total":1,`) {
			t.Errorf("the list of %q is %s, want %s alone", first[:n], list, first)
		}
		if d := w.act("idle", `{"action":"cancel","filter":{"idPrefix":"`+first[:n]+`"}}`); d.Matched != 1 || d.Done != 1 {
			t.Errorf("the prefix %q has %+v, want one job", first[:n], d)
		}
		for id, want := range map[string]string{first: "CANCELLED", other: "IN_QUEUE"} {
			if s := w.jobState("idle", id); s != want {
				t.Errorf("job %s is %s, want %s", id, s, want)
			}
		}
	})
}

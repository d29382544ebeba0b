package httpapi_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAScheduleOnTheWire(t *testing.T) {
	bubble(t, func(w *testAPI) {
		alice := "Authorization: Bearer " + aliceFree
		v := w.want(201, "POST", "/v2/idle/schedules", `{"cron":"30  9 * * mon-fri","timeZone":"Europe/Berlin",
			"run":{"s3Config":{"accessSecret":"hidden"},"input":{"a":[1, 2.50]},"queue":{"key":"k"}},"overlap":"allow"}`, alice)
		id := v.field("id")
		want := `{"id":"` + id + `","cron":"30  9 * * mon-fri","timeZone":"Europe/Berlin","run":{"input":{"a":[1,2.50]},"queue":{"key":"k"}},` +
			`"overlap":"allow","catchUp":"none","enabled":true,"next":"2000-01-03T08:30:00.000Z","outcomes":[],"createdAt":"2000-01-01T00:00:00.000Z"}`
		if v.body != want {
			t.Errorf("create answers\n%s\nwant\n%s", v.body, want)
		}
		path := "/v2/idle/schedules/" + id
		if got := w.want(200, "GET", path, "", alice).body; got != want {
			t.Errorf("get answers\n%s\nwant\n%s", got, want)
		}
		advance(57 * time.Hour)
		job := w.jobs.Schedules()
		stored, err := job.Get(t.Context(), "alice", "idle", id)
		if err != nil || len(stored.Outcomes) != 1 {
			t.Fatalf("outcomes = %+v, %v, want one", stored.Outcomes, err)
		}
		got := w.want(200, "GET", path, "", alice).body
		if want := `"outcomes":[{"at":"2000-01-03T08:30:00.000Z","outcome":"submitted","job":"` + string(stored.Outcomes[0].Job) + `","detail":null}]`; !strings.Contains(got, want) {
			t.Errorf("the schedule is %s, want %s in it", got, want)
		}
		jobs, err := w.jobs.Take(t.Context(), "idle", "w1", 1)
		if err != nil || len(jobs) != 1 {
			t.Fatalf("Take = %v, %v, want the job", jobs, err)
		}
		if want := `{"schedule":{"id":"` + id + `","at":"2000-01-03T08:30:00Z"},"s3Config":{"accessSecret":"hidden"}}`; string(jobs[0].Extra) != want || jobs[0].Key != "k" {
			t.Errorf("the worker sees %s of key %q, want %s of k", jobs[0].Extra, jobs[0].Key, want)
		}
		if got := w.want(200, "PATCH", path, `{"enabled":false,"run":{"input":{}}}`, alice).body; !strings.Contains(got, `"next":null`) || strings.Contains(got, "hidden") {
			t.Errorf("patch answers %s, want no next instant", got)
		}
		ran := w.want(200, "POST", path+"/run", "", alice)
		if got := w.want(200, "GET", "/v2/idle/status/"+ran.field("id"), "", alice).body; !strings.Contains(got, `"IN_QUEUE"`) {
			t.Errorf("the job of run is %s", got)
		}
		w.want(204, "DELETE", path, "", alice)
		w.want(404, "GET", path, "", alice)
	})
}

func TestAScheduleEndsWithTheKeysOfItsOwner(t *testing.T) {
	bubble(t, func(w *testAPI) {
		admin := "Authorization: Bearer " + adminFree
		key := w.want(201, "POST", "/v2/account/keys", `{"user":"carol","scopes":["endpoint:idle:run"]}`, as(operatorFree))
		carol := as(key.field("key"))
		path := "/v2/idle/schedules/" + w.want(201, "POST", "/v2/idle/schedules", `{"cron":"0 * * * *","run":{"input":{}},"overlap":"allow"}`, carol).field("id")
		advance(90 * time.Minute)
		w.want(204, "DELETE", "/v2/account/keys/"+key.field("id"), "", as(operatorFree))
		advance(time.Hour)
		got := w.want(200, "GET", path, "", as(operatorFree))
		if owner := got.header.Get("Podyard-Owner"); owner != "carol" {
			t.Errorf("an operator finds it as that of %q, want carol", owner)
		}
		if !strings.Contains(got.body, `"enabled":false,"next":null,"outcomes":[{"at":"2000-01-01T02:00:00.000Z","outcome":"disabled","job":null,`) {
			t.Errorf("the schedule is %s, want it disabled at two o'clock", got.body)
		}
		w.want(404, "GET", path, "", admin)
		if all := w.want(200, "GET", "/v2/idle/schedules?owner=*", "", as(operatorFree)).body; !strings.HasPrefix(all, `{"schedules":[{"owner":"carol","item":{"id":`) {
			t.Errorf("the list of all owners is %s", all)
		}
		if got := w.want(200, "DELETE", "/v2/admin/users/carol", "", as(operatorFree)).body; !strings.Contains(got, `"schedules":1`) {
			t.Errorf("what was erased of carol is %s, want a schedule", got)
		}
		synctest.Wait()
		w.want(404, "GET", path, "", as(operatorFree))
	})
}

package browser

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
)

// pod creates a pod and returns its id.
func (w *world) pod(settings string) string {
	w.t.Helper()
	var p struct{ ID string }
	check(w.t, json.Unmarshal(w.call("POST", "/v2/pods", `{"name":"p",`+settings+`}`), &p))
	return p.ID
}

// becomes waits until a pod has a status.
func (w *world) becomes(pod, status string) {
	w.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var p struct{ Status string }
		check(w.t, json.Unmarshal(w.call("GET", "/v2/pods/"+pod, ""), &p))
		if p.Status == status {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("the pod is %s, want %s", p.Status, status)
		}
	}
}

// A pod that does not run says on its page why, since when, and what was tried.
func TestAPodThatIsStuckSaysWhyAndSinceWhen(t *testing.T) {
	suite.SkipUnlessLong(t)
	w, b := start(t, setup{}), browse(t)
	b.size(1280, 900)
	b.signIn(w, adminKey)
	const cpu = `"cpu":{"id":"cpu3c","vcpuCount":2},"dataCenterIds":["US-TX-3"]`
	missing := w.pod(`"image":"acme/missing:1",` + cpu)
	ends := w.pod(`"image":"acme/ends:1",` + cpu)
	stopped := w.pod(`"image":"acme/web:1",` + cpu)
	const b200 = `"image":"acme/web:1","gpu":{"id":"NVIDIA B200","count":8},"dataCenterIds":["US-TX-3"]`
	w.pod(b200)
	w.pod(b200)
	full := w.pod(b200)
	never := w.pod(`"image":"acme/web:1","cloud":"COMMUNITY","gpu":{"id":"NVIDIA B200"}`)
	w.becomes(stopped, "RUNNING")
	w.call("POST", "/v2/pods/"+stopped+"/action", `{"action":"stop"}`)
	w.becomes(stopped, "EXITED")
	w.call("POST", "/v2/admin/cordon", `{"host":"us-tx-3-secure"}`)
	for _, p := range []struct{ name, pod, title, sees string }{
		{"pod-missing-image", missing, "Why it failed", "It has failed: pull image acme/missing:1: it does not exist, or the credential may not read it."},
		{"pod-ended-at-once", ends, "Why it failed", "container exited with code 1. That was 2"},
		{"pod-host-cordoned", stopped, "Why it ended", "It cannot start now: its host takes nothing new, because an operator has cordoned it at"},
		{"pod-waits", full, "Why it does not run yet", "1 host takes nothing new, because an operator has cordoned it"},
		{"pod-never", never, "Why it does not run yet", "No host of this service can take it: it would wait for ever."},
	} {
		b.goes(w, "pods/"+p.pod)
		b.sees(p.title)
		b.sees("Since ")
		b.both(w, p.name, "", p.sees)
	}
	b.sees("has no NVIDIA B200") // an operator sees each host
	w.call("POST", "/v2/admin/uncordon", `{"host":"us-tx-3-secure"}`)
	b.goes(w, "pods/"+full)
	b.sees("1 host is full")
	b.sees("is full: 0 of its 16 NVIDIA B200 are free, and the pod needs 8")
	b.goes(w, "hosts")
	b.sees("16 of 16 NVIDIA B200") // of which each of two pods has 8
	b.both(w, "hosts-with-claims", "", "Who has what")
	b.goes(w, "account")
	b.both(w, "account-with-windows", "", "Begins anew")
	b.wantNoFaults()
}

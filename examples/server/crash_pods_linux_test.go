package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A trackedPod is a pod, and how its user left it: RUNNING, EXITED or TERMINATED. More than one
// is possible when there was no answer.
type trackedPod struct {
	history
	id    string
	left  []string
	round int // in which something was done with it last

	// What one of several servers was asked without an answer it may still do, until doubt.
	late  []string
	doubt time.Time
}

// mayBe reports whether a pod may be in a status.
func (f *trackedPod) mayBe(status string) bool {
	return slices.Contains(f.left, status) || slices.Contains(f.late, status)
}

// A podClient creates, stops, starts and terminates pods of podyard/web.
type podClient struct {
	*crashTest
	rng     *rand.Rand
	pods    []*trackedPod
	unheard int // creations without an answer
}

const maxPods = 3

// step does one thing. It reports false when there was no answer.
func (n *podClient) step(ctx context.Context) bool {
	var rented []*trackedPod
	for _, f := range n.pods {
		if !slices.Equal(f.left, []string{"TERMINATED"}) {
			rented = append(rented, f)
		}
	}
	if len(rented) < maxPods {
		return n.create(ctx)
	}
	f := rented[n.rng.IntN(len(rented))]
	switch a := n.rng.IntN(4); {
	case a == 0:
		return n.act(ctx, f, "terminate", "TERMINATED")
	case f.left[0] == "EXITED":
		return n.act(ctx, f, "start", "RUNNING")
	default:
		return n.act(ctx, f, "stop", "EXITED")
	}
}

func (n *podClient) create(ctx context.Context) bool {
	code, b, err := n.do(ctx, "POST", "/v2/pods", `{"name":"crash","image":"podyard/web","cpu":{"id":"host","vcpuCount":2},"ports":["8000/http"]}`)
	if err != nil {
		n.unheard++
		return false
	}
	var p pod
	f := &trackedPod{left: []string{"RUNNING"}, round: n.round}
	f.note(n.round, "create: %d %s", code, b)
	if code == http.StatusBadRequest && strings.Contains(string(b), "no capacity") {
		return true // until what was terminated is gone
	}
	if err := json.Unmarshal(b, &p); err != nil || code != http.StatusCreated {
		n.violation(f, "create is answered with %d", code)
		return true
	}
	f.id = p.ID
	n.pods = append(n.pods, f)
	return true
}

// act asks for an action, which is refused while the pod is in between (409), and while
// others have what it needs (400).
func (n *podClient) act(ctx context.Context, f *trackedPod, action, then string) bool {
	code, b, err := n.do(ctx, "POST", "/v2/pods/"+f.id+"/action", `{"action":"`+action+`"}`)
	f.round = n.round
	f.note(n.round, "%s: %d %v", action, code, err)
	switch {
	case err != nil:
		f.left = append(f.left, then)
		if n.several {
			f.late, f.doubt = append(f.late, then), time.Now().Add(doubtFor)
		}
		return false
	case code == http.StatusOK || code == http.StatusNoContent:
		f.left = []string{then}
	case code == http.StatusNotFound && f.mayBe("TERMINATED"): // that had no answer
		f.left = []string{"TERMINATED"}
	case code == http.StatusBadRequest && strings.Contains(string(b), "no capacity"):
	case code != http.StatusConflict:
		n.violation(f, "%s is answered with %d %s", action, code, b)
	}
	return true
}

// audit waits until the pods are as they were left.
func (n *podClient) audit() {
	for id := range n.list() {
		if !slices.ContainsFunc(n.pods, func(f *trackedPod) bool { return f.id == id }) {
			f := &trackedPod{id: id, left: []string{"RUNNING"}, round: n.round}
			f.note(n.round, "found")
			if n.unheard--; n.unheard < 0 {
				n.violation(f, "nobody has created pod %s", id)
			}
			n.pods = append(n.pods, f)
		}
	}
	if !n.several { // of several, one that was stopped for a while may create it later
		n.unheard = 0
	}
	listed := n.list()
	for _, f := range n.pods {
		p, there := listed[f.id]
		gone := slices.Contains(f.left, "TERMINATED")
		switch {
		case !there && !f.mayBe("TERMINATED"):
			n.violation(f, "pod %s is lost", f.id)
		case there && gone && len(f.left) == 1:
			n.violation(f, "pod %s is back: it is %s", f.id, p.Status)
		case !there:
			f.left = []string{"TERMINATED"}
		}
		if n.t.Failed() {
			return
		}
		if f.left = slices.DeleteFunc(f.left, func(s string) bool { return there && s == "TERMINATED" }); there || f.round >= n.round-1 {
			n.settle(f)
		}
		if time.Now().After(f.doubt) {
			f.late = nil
		}
	}
}

func (n *podClient) list() map[string]pod {
	var code int
	var b []byte
	var err error
	n.answered(func() bool { code, b, err = n.do(n.t.Context(), "GET", "/v2/pods", ""); return err == nil })
	var all struct{ Pods []pod }
	if err != nil || code != http.StatusOK || json.Unmarshal(b, &all) != nil {
		n.t.Errorf("the list of pods is answered with %d %s %v", code, b, err)
	}
	byID := map[string]pod{}
	for _, p := range all.Pods {
		byID[p.ID] = p
	}
	return byID
}

// settle waits until a pod is what it was left as, and its process likewise.
func (n *podClient) settle(f *trackedPod) {
	n.t.Helper()
	seen, why := "", ""
	defer func() {
		if n.t.Failed() {
			n.t.Logf("pod %s, %s: %s\n%s", f.id, seen, why, f)
		}
	}()
	eventually(n.t, "pod "+f.id+" is "+strings.Join(f.left, " or ")+", and so is its process", func() bool {
		seen, why = n.compare(f)
		return why == ""
	})
	f.left = []string{seen}
}

// compare says how a pod is, and in what this is not what its user or the machine says.
func (n *podClient) compare(f *trackedPod) (seen, why string) {
	code, b, err := n.do(n.t.Context(), "GET", "/v2/pods/"+f.id, "")
	p := pod{Status: "TERMINATED"}
	if err == nil && code != http.StatusNotFound {
		err = json.Unmarshal(b, &p)
	}
	pids := processes(n.t, f.id)
	switch {
	case err != nil:
		return "", err.Error()
	case !f.mayBe(p.Status):
		return p.Status, fmt.Sprintf("not as it was left, with processes %v: %s", pids, b)
	case p.Status != "RUNNING" && len(pids) > 0, p.Status == "RUNNING" && len(pids) != 1:
		return p.Status, fmt.Sprintf("with processes %v", pids)
	case p.Status != "RUNNING":
		return p.Status, ""
	case p.Runtime == nil || len(p.Runtime.Ports) != 1:
		return p.Status, fmt.Sprintf("without its port: %s", b)
	}
	text, err := visit(p.address())
	if err != nil || !strings.Contains(text, f.id) {
		return p.Status, fmt.Sprintf("it answers %q, %v", text, err)
	}
	return p.Status, ""
}

package browser

import (
	"encoding/json"
	"strings"
	"testing"
)

const cluster = `{"name":"train","type":"TRAINING","image":"acme/train:2","compute":{"gpuTypeId":"NVIDIA GeForce RTX 4090","gpuCountPerPod":1,"podCount":2}}`

// A pod of a cluster is changed and deleted with the cluster alone.
func TestAClusterIsDeletedAndItsPodsOfferNothingOfTheirOwn(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	b.signIn(w, adminKey)
	var c struct{ ID string }
	check(t, json.Unmarshal(w.call("POST", "/v2/clusters", cluster), &c))
	b.goes(w, "clusters")
	b.sees("2 running")
	b.press("train")
	b.sees("Pods of the cluster")
	b.wantAccessible("cluster")
	b.press(c.ID)
	b.sees("Rank 0 of the cluster")
	b.sees("Open a terminal")
	for _, act := range []string{"Start", "Stop…", "Restart…", "Reset…", "Terminate…", "Change variables…"} {
		if eval[bool](b, `[...document.querySelectorAll('button')].some(e => e.textContent.trim() === `+quote(act)+`)`) {
			t.Errorf("a pod of a cluster offers %q, which the API refuses", act)
		}
	}
	b.press(c.ID)
	b.press("Delete…")
	b.fill("dialog input", c.ID)
	b.press("Delete the cluster")
	b.sees("There are no clusters.")
	if list := string(w.call("GET", "/v2/clusters", "")); strings.Contains(list, c.ID) {
		t.Errorf("the cluster is there: %s", list)
	}
	b.wantNoFaults()
}

package httpapi_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const trainingCluster = `{"name":"train","type":"TRAINING","image":"i","compute":{"gpuTypeId":"NVIDIA GeForce RTX 4090","gpuCountPerPod":1,"podCount":2}}`

// clusterRefusals are bad requests to clusters (docs/decisions.md 50).
func clusterRefusals() []refusal {
	nobody := []string{"Authorization: Bearer nobody"}
	with := func(more string) string { return strings.TrimSuffix(trainingCluster, "}") + "," + more + "}" }
	compute := func(gpu, count, n string) string {
		return `{"name":"n","type":"TRAINING","image":"i","compute":{"gpuTypeId":` + gpu + `,"gpuCountPerPod":` + count + `,"podCount":` + n + `}}`
	}
	const (
		list, post, get     = "GET /v2/clusters", "POST /v2/clusters", "GET /v2/clusters/{cluster}"
		patch, del, ofPods  = "PATCH /v2/clusters/{cluster}", "DELETE /v2/clusters/{cluster}", "GET /v2/clusters/{cluster}/pods"
		notFound, bill, rtx = "cluster not found", "GET /v2/billing/clusters", `"NVIDIA GeForce RTX 4090"`
		noToken, gone       = "missing bearer token", "invalid or expired token"
	)
	rows := []refusal{
		{list + "?limit=0", "", 422, "limit must be an integer from 1 to 1000", nil},
		{list + "?owner=bob", "", 403, "access denied", nil},
		{post, "", 400, "the body is empty: it must be a JSON object", nil},
		{post, "[]", 422, "the body must be a JSON object", nil},
		{post, "{}", 422, "/name: is required | /type: is required | /compute: is required | /image: is required", nil},
		{post, `{"name":1,"type":"GRID","compute":[],"image":"i"}`, 422, "/name: must be a string | /type: must be one of TRAINING, APPLICATION, SLURM, RAY | /compute: must be an object", nil},
		{post, strings.Replace(trainingCluster, "TRAINING", "SLURM", 1), 422, "/type: SLURM is not offered: TRAINING and APPLICATION are", nil},
		{post, strings.Replace(trainingCluster, "TRAINING", "RAY", 1), 422, "/type: RAY is not offered: TRAINING and APPLICATION are", nil},
		{post, `{"name":"n","type":"TRAINING","image":"i","compute":{}}`, 422, "/compute/gpuTypeId: is required | /compute/gpuCountPerPod: is required | /compute/podCount: is required", nil},
		{post, compute(`"x"`, "0", "1"), 422, `/compute/gpuTypeId: unknown GPU type "x" | /compute/gpuCountPerPod: must be at least 1 | /compute/podCount: must be 2 to 250`, nil},
		{post, compute(rtx, "1", "251"), 422, "/compute/podCount: must be 2 to 250", nil},
		{post, compute(rtx, "1.5", `"2"`), 422, "/compute/gpuCountPerPod: must be an integer | /compute/podCount: must be an integer", nil},
		{post, with(`"registry":"r","gpu":{"id":"x"},"cloud":"SECURE"`), 422, "/gpu: unknown property | /registry: unknown property | /cloud: unknown property", nil},
		{post, with(`"disk":0,"env":{"A":1}`), 422, "/disk: must be 1 to 1048576 GB | /env/A: must be a string", nil},
		{post, with(`"dataCenterIds":["nowhere"]`), 422, `/dataCenterIds/0: unknown data center "nowhere"`, nil},
		{post, with(`"templateId":"{tpl}","disk":5`), 400, "/image: excludes templateId: the template says it | /disk: excludes templateId: the template says it", nil},
		{post, `{"name":"n","type":"TRAINING","templateId":"{bobtpl}","compute":{"gpuTypeId":` + rtx + `,"gpuCountPerPod":1,"podCount":2}}`, 404, "template not found", nil},
		{post, with(`"mounts":{"persistent":{"size":10,"path":"/p"},"network":[{"volumeId":"vol1","path":"/n"}]}`), 400, "/mounts: persistent and network exclude each other", nil},
		{"GET /v2/clusters/{cpu}", "", 404, notFound, nil},
		{"GET /v2/clusters/{member}", "", 404, notFound, nil},
		{patch, "{}", 422, "the body must name at least one of name", nil},
		{patch, `{"name":""}`, 422, "/name: must not be empty", nil},
		{patch, `{"name":"n","type":"RAY"}`, 422, "/type: unknown property", nil},
		{bill + "?clusterId=", "", 422, "clusterId must not be empty", nil},
		{bill + "?lastN=0", "", 422, "lastN must be an integer from 1 to 10000", nil},
	}
	for _, request := range []string{list, post, get, patch, del, ofPods, bill} {
		rows = append(rows, refusal{request, "", 401, noToken, []string{"Authorization:"}}, refusal{request, "", 401, gone, nobody})
		if strings.Contains(request, "{cluster}") {
			rows = append(rows, refusal{strings.Replace(request, "{cluster}", "{bobcluster}", 1), `{"name":"n"}`, 404, notFound, nil})
		}
	}
	const member = "/v2/pods/{member}"
	for request, body := range map[string]string{
		"PATCH " + member: `{"name":"n"}`, "DELETE " + member: "", "POST " + member + "/action": `{"action":"stop"}`, "POST /v1/pods/{member}/reset": "",
	} {
		rows = append(rows, refusal{request, body, 409, "the pod is a member of a cluster, and is changed through the cluster only: cluster {ofmember}", nil})
	}
	return rows
}

func TestAClusterOnTheWire(t *testing.T) {
	bubble(t, func(w *testAPI) {
		made := w.want(201, "POST", "/v2/clusters", trainingCluster)
		id := made.field("id")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		var got map[string]any
		if err := json.Unmarshal([]byte(w.want(200, "GET", "/v2/clusters/"+id, "").body), &got); err != nil {
			t.Fatal(err)
		}
		want := map[string]any{
			"id": id, "name": "train", "type": "TRAINING", "compute": map[string]any{"gpuTypeId": "NVIDIA GeForce RTX 4090", "gpuCountPerPod": 1., "podCount": 2.},
			"pods": map[string]any{"total": 2., "byStatus": map[string]any{"RUNNING": 2.}}, "primary": map[string]any{"podId": id, "status": "RUNNING"},
			"dataCenterId": got["dataCenterId"], "createdAt": got["createdAt"],
		}
		if diff := cmp.Diff(want, got); diff != "" || got["dataCenterId"] == nil {
			t.Errorf("the cluster (-want +got):\n%s", diff)
		}
		members := w.want(200, "GET", "/v2/clusters/"+id+"/pods", "")
		ids := idsOf(t, members, "pods")
		if len(ids) != 2 || ids[0] != id || !strings.Contains(members.body, `"cluster":{"id":"`+id+`","rank":1,"ip":"`) {
			t.Errorf("members: %s", members.body)
		}
		if a := w.want(200, "GET", "/v2/pods", ""); len(idsOf(t, a, "pods")) != 0 {
			t.Errorf("a list of pods has members of a cluster: %s", a.body)
		}
		if a := w.want(200, "GET", "/v2/pods?includeClusterPods=true", ""); len(idsOf(t, a, "pods")) != 2 {
			t.Errorf("a list of all pods lacks members of a cluster: %s", a.body)
		}
		if a := w.want(200, "PATCH", "/v2/clusters/"+id, `{"name":"other"}`); a.field("name") != "other" {
			t.Errorf("renamed: %s", a.body)
		}
		time.Sleep(time.Hour)
		if a := w.want(200, "GET", "/v2/billing/clusters?clusterId="+id, ""); !strings.Contains(a.body, `"clusterId":"`+id+`"`) || !strings.Contains(a.body, `"uniqueClusterCount":1`) || strings.Contains(a.body, `"totalAmount":0,`) {
			t.Errorf("the bill: %s", a.body)
		}
		if a := w.want(200, "GET", "/v2/billing/pods", ""); !strings.Contains(a.body, `"records":[]`) {
			t.Errorf("the bill of pods has those of a cluster: %s", a.body)
		}
		w.want(204, "DELETE", "/v2/clusters/"+id, "")
		w.want(404, "GET", "/v2/clusters/"+id, "")
		w.want(404, "GET", "/v2/pods/"+ids[1], "")
	})
}

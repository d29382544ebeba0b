package main

import (
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/podyard/podyard/examples/server/demo"
	"github.com/podyard/podyard/internal/suite"
)

// loggingVolumeImage is the configuration of an image that adds its pod to a file in its mount, and
// prints the file.
func loggingVolumeImage(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("needs a shell: ", err)
	}
	return file(t, `{"images":{"local/diarist":{"command":["sh","-c",
		"echo pod >>$PODYARD_MOUNT_0/file; echo at $PODYARD_MOUNT_0_PATH there are $(grep -c pod $PODYARD_MOUNT_0/file)"]}}}`)
}

func TestANetworkVolumeOutlivesItsPodsAndTheServer(t *testing.T) {
	suite.SkipUnlessLong(t)
	config, data := loggingVolumeImage(t), t.TempDir()
	in := start(t, "-data", data, "-config", config)
	type volume struct {
		ID, DataCenter, Type string
		Size                 int
	}
	v := get[volume](in, "POST", "/v2/network-volumes", `{"name":"v","size":10,"dataCenter":"LOCAL-1"}`, http.StatusCreated)
	if v.DataCenter != "LOCAL-1" || v.Type != "STANDARD" || v.Size != 10 {
		t.Errorf("created %+v", v)
	}
	mount := `,"mounts":{"network":[{"volumeId":"` + v.ID + `","path":"/data"}]}`
	writes := func(want string) {
		t.Helper()
		p := in.create("local/diarist", mount)
		in.follow(p.ID).await("container: at /data there are " + want)
		get[any](in, "DELETE", "/v2/network-volumes/"+v.ID, "", http.StatusBadRequest)
		get[any](in, "DELETE", "/v2/pods/"+p.ID, "", http.StatusNoContent)
	}
	writes("1")
	writes("2")
	in.stop()
	in = start(t, "-data", data, "-config", config)
	if got := get[volume](in, "GET", "/v2/network-volumes/"+v.ID, "", http.StatusOK); got != v {
		t.Errorf("after a restart: %+v, want %+v", got, v)
	}
	writes("3")
	in.deleteVolume(v.ID)
	get[any](in, "POST", "/v2/pods", `{"name":"p","image":"local/diarist","cpu":{"id":"host","vcpuCount":2}`+mount+`}`, http.StatusBadRequest)
}

func TestWorkersOfAnEndpointShareItsNetworkVolumeWithPods(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := start(t, "-config", file(t, `{"images":{"local/sh":{"command":["/bin/sh","-c"]}}}`))
	v := get[struct{ ID string }](in, "POST", "/v2/network-volumes", `{"name":"v","size":10,"dataCenter":"LOCAL-1"}`, http.StatusCreated).ID
	request := func(volumes string) string {
		return `{"name":"e","type":"QUEUE","image":"local/sh","cpu":[{"id":"host","vcpuCount":2}],"workers":{"max":1},"scaling":{"type":"REQUEST_COUNT","requestCount":1},` +
			`"args":"'echo $RUNPOD_VOLUME_ID at $PODYARD_MOUNT_0_PATH >$PODYARD_MOUNT_0/file; exec ` + program + ` ` + demo.HelloCommand + `'","networkVolumes":` + volumes + `}`
	}
	if status, body := in.do("POST", "/v2/serverless", request(`["none"]`)); status != http.StatusBadRequest || !strings.Contains(string(body), `network volume \"none\" does not exist`) {
		t.Errorf("an endpoint with a volume that does not exist: %d %s, want a 400 that says so", status, body)
	}
	e := get[struct {
		ID             string
		NetworkVolumes []string
	}](in, "POST", "/v2/serverless", request(`["`+v+`"]`), http.StatusCreated)
	if !slices.Equal(e.NetworkVolumes, []string{v}) {
		t.Errorf("networkVolumes = %q, want the one that was asked for", e.NetworkVolumes)
	}
	if j := get[job](in, "POST", "/v2/"+e.ID+"/runsync?wait=30000", `{"input":{}}`, http.StatusOK); j.Status != "COMPLETED" {
		t.Fatalf("the job is %s %s, want COMPLETED", j.Status, j.Error)
	}
	p := in.create("local/sh", `,"args":"'cat $PODYARD_MOUNT_0/file; exec sleep 1000'","mounts":{"network":[{"volumeId":"`+v+`","path":"/data"}]}`)
	in.follow(p.ID).await("container: " + v + " at /runpod-volume")
	get[any](in, "DELETE", "/v2/pods/"+p.ID, "", http.StatusNoContent)
	get[any](in, "DELETE", "/v2/network-volumes/"+v, "", http.StatusBadRequest)
	get[any](in, "DELETE", "/v2/serverless/"+e.ID, "", http.StatusNoContent)
	in.deleteVolume(v)
}

// deleteVolume deletes a volume as soon as nothing uses it any more.
func (in *instance) deleteVolume(id string) {
	in.t.Helper()
	eventually(in.t, "the volume can be deleted when the processes that use it have ended", func() bool {
		status, _ := in.do("DELETE", "/v2/network-volumes/"+id, "")
		return status == http.StatusNoContent
	})
}

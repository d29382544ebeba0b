package main

import (
	"net/http"
	"os/exec"
	"testing"
)

// diarist is the configuration of an image that adds its pod to a file in its mount, and
// prints the file.
func diarist(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("needs a shell: ", err)
	}
	return file(t, `{"images":{"local/diarist":{"command":["sh","-c",
		"echo pod >>$PODYARD_MOUNT_0/file; echo at $PODYARD_MOUNT_0_PATH there are $(grep -c pod $PODYARD_MOUNT_0/file)"]}}}`)
}

func TestANetworkVolumeOutlivesItsPodsAndTheServer(t *testing.T) {
	config, data := diarist(t), t.TempDir()
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
	get[any](in, "DELETE", "/v2/network-volumes/"+v.ID, "", http.StatusNoContent)
	get[any](in, "POST", "/v2/pods", `{"name":"p","image":"local/diarist","cpu":{"id":"host","vcpuCount":2}`+mount+`}`, http.StatusBadRequest)
}

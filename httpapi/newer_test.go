package httpapi_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A command is what answers say of what a container runs.
type command struct {
	Args            string
	Entrypoint, Cmd []string
}

func commandIn(t *testing.T, a answer) (c command) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestACommandIsTheSameAsArgsAndAsListsEverywhere(t *testing.T) {
	const create = `"entrypoint":["/bin/sh"],"cmd":["-c","echo 'a b'"]`
	both := command{`{"entrypoint":["/bin/sh"],"cmd":["-c","echo 'a b'"]}`, []string{"/bin/sh"}, []string{"-c", "echo 'a b'"}}
	for path, body := range map[string]string{
		"/v2/pods":       `"name":"p","image":"img","cpu":{"id":"cpu3c","vcpuCount":2}`,
		"/v2/templates":  `"name":"t","image":"img"`,
		"/v2/serverless": `"name":"e","image":"img","type":"QUEUE","scaling":{"type":"QUEUE_DELAY","queueDelay":4},"cpu":[{"id":"cpu3c","vcpuCount":2}]`,
	} {
		bubble(t, func(w *testAPI) {
			same := func(what string, want command, a answer) {
				t.Helper()
				if diff := cmp.Diff(want, commandIn(t, a)); diff != "" {
					t.Errorf("%s: %s (-want +got):\n%s", path, what, diff)
				}
			}
			made := w.want(201, "POST", path, "{"+body+","+create+"}", "Authorization: Bearer "+adminFree)
			same("both lists", both, made)
			at := path + "/" + made.field("id")
			patch := func(status int, body string) answer {
				t.Helper()
				return w.want(status, "PATCH", at, body, "Authorization: Bearer "+adminFree)
			}
			read, err := json.Marshal(map[string]any{"args": both.Args, "entrypoint": both.Entrypoint, "cmd": both.Cmd})
			if err != nil {
				t.Fatal(err)
			}
			same("what was read is sent back", both, patch(200, string(read)))
			same("one list keeps the other", command{`{"entrypoint":["/bin/sh"],"cmd":["-l"]}`, []string{"/bin/sh"}, []string{"-l"}}, patch(200, `{"cmd":["-l"]}`))
			patch(400, `{"args":"x","cmd":["y"]}`)
			patch(422, `{"args":"{\"cmd\":7}"}`)
			same("args replace both", command{"x 'y z'", []string{}, []string{"x", "y z"}}, patch(200, `{"args":"x 'y z'"}`))
			same("nothing is the image's", command{"", []string{}, []string{}}, patch(200, `{"entrypoint":[],"cmd":[]}`))
		})
	}
}

func TestReleasesHavePagesNewestFirst(t *testing.T) {
	bubble(t, func(w *testAPI) {
		const settings = `"image":"img","type":"QUEUE","scaling":{"type":"QUEUE_DELAY","queueDelay":4},"cpu":[{"id":"cpu3c","vcpuCount":2}]`
		path := "/v2/serverless/" + w.want(201, "POST", "/v2/serverless", `{"name":"e",`+settings+`}`, asAdmin).field("id")
		for _, args := range []string{"1", "2", "3", "4"} {
			w.want(200, "PATCH", path, `{"args":"`+args+`"}`, asAdmin)
		}
		whole := idsOf(t, w.want(200, "GET", path+"/releases", "", asAdmin), "releases")
		paged, sizes := w.allPages(t, path+"/releases?limit=2", "releases", asAdmin, nil)
		if diff := cmp.Diff(whole, paged); diff != "" || len(sizes) != 3 {
			t.Errorf("pages of %d releases, %v (-whole +pages):\n%s", len(whole), sizes, diff)
		}
		w.want(422, "GET", path+"/releases?cursor=AAAA", "", asAdmin)
	})
}

func TestAWholeListSaysThatItIsTheLastPage(t *testing.T) {
	bubble(t, func(w *testAPI) {
		for _, path := range []string{"/v2/pods", "/v2/serverless", "/v2/templates", "/v2/network-volumes", "/v2/catalog/templates"} {
			a := w.want(200, "GET", path, "", asAdmin)
			if !strings.HasSuffix(strings.TrimSpace(a.body), `],"pagination":{"nextCursor":null,"hasNextPage":false}}`) {
				t.Errorf("%s ends with %.80q", path, a.body[max(0, len(a.body)-80):])
			}
		}
	})
}

// dstack 0.22.5 sends this body for a pod with a GPU, and then reads the pod until its runtime has the
// port of its own sshd.
func TestTheBodyThatDstackSendsMakesAPod(t *testing.T) {
	bubble(t, func(w *testAPI) {
		a := w.want(201, "POST", "/v2/pods", `{"name":"run-0","cloud":"SECURE","dataCenterIds":["US-TX-3"],"image":"dstackai/base:0.13-base-ubuntu22.04",`+
			`"entrypoint":["/bin/sh"],"cmd":["-c","apt-get update && exec sshd -D -p 10022"],"disk":100,"ports":["10022/tcp"],"env":{},`+
			`"gpu":{"id":"NVIDIA GeForce RTX 4090","count":1,"minCudaVersion":"12.8","minRamPerGpu":8,"minVcpuCountPerGpu":2}}`)
		advance(10 * time.Second)
		var pod struct {
			Runtime struct {
				Ports []struct{ Private, Public int }
			}
		}
		if err := json.Unmarshal([]byte(w.want(200, "GET", "/v2/pods/"+a.field("id"), "").body), &pod); err != nil {
			t.Fatal(err)
		}
		if p := pod.Runtime.Ports; len(p) != 1 || p[0].Private != 10022 || p[0].Public == 0 {
			t.Errorf("the ports of the pod are %+v, want 10022 with a public one", p)
		}
	})
}

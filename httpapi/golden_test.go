package httpapi_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// record appends a request, with its unusual headers, and every byte of its answer to the
// transcript.
func (w *testAPI) record(method, target, body string, headers []string, a answer) {
	if w.transcript == nil {
		return
	}
	w.recording.Lock()
	defer w.recording.Unlock()
	b := w.transcript
	fmt.Fprintf(b, "> %s %s\n", method, target)
	for _, h := range headers {
		fmt.Fprintf(b, "> %s\n", h)
	}
	if body != "" {
		fmt.Fprintf(b, ">\n> %s\n", body)
	}
	fmt.Fprintf(b, "< %d %s\n", a.status, http.StatusText(a.status))
	for _, name := range slices.Sorted(mapKeys(a.header)) {
		for _, v := range a.header[name] {
			fmt.Fprintf(b, "< %s: %s\n", name, v)
		}
	}
	if a.body != "" {
		b.WriteString("\n" + strings.TrimSuffix(a.body, "\n") + "\n")
	}
	b.WriteString("\n")
}

func mapKeys(h http.Header) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range h {
			if !yield(k) {
				return
			}
		}
	}
}

// golden runs a story and compares its transcript with testdata/<name>.txt.
func golden(t *testing.T, name string, story func(w *testAPI)) {
	t.Helper()
	var got strings.Builder
	bubble(t, func(w *testAPI) {
		w.transcript = &got
		story(w)
	})
	compareGolden(t, name, got.String())
}

// compareGolden compares a transcript with testdata/<name>.txt.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the wire is not as in %s, -update writes it anew (-want +got):\n%s", path, diff)
	}
}

const gpuPod = `{"name":"p","image":"img","gpu":{"id":"NVIDIA GeForce RTX 4090"}}`

func TestWireOfPods(t *testing.T) {
	golden(t, "pods", func(w *testAPI) {
		w.want(200, "GET", "/v2/pods", "")
		id := w.want(201, "POST", "/v2/pods", `{"name":"train","image":"org/train:1","gpu":{"id":"NVIDIA GeForce RTX 4090","count":2},`+
			`"args":"--fast 'a b'","disk":20,"ports":["8888/http","22/tcp"],"env":{"A":"1","B":""},"mounts":{"persistent":{"size":20,"path":"/workspace"}},`+
			`"cloud":"SECURE","dataCenterIds":["US-TX-3"],"globalNetworking":true}`).field("id")
		advance(10 * time.Second)
		w.want(200, "GET", "/v2/pods/"+id, "")
		w.want(200, "PATCH", "/v2/pods/"+id, `{"name":"train 2","image":"org/train:2","ports":[],"mounts":{"persistent":{"size":30,"path":"/data"}}}`)
		w.want(200, "POST", "/v2/pods/"+id+"/action", `{"action":"restart"}`)
		advance(10 * time.Second)
		w.want(200, "POST", "/v2/pods/"+id+"/action", `{"action":"stop"}`)
		advance(time.Second)
		w.want(200, "GET", "/v2/pods/"+id, "")
		w.want(200, "POST", "/v2/pods/"+id+"/action", `{"action":"start"}`, "Content-Type: application/json; charset=utf-8")
		advance(time.Second)
		w.want(200, "POST", "/v1/pods/"+id+"/reset", "")
		advance(time.Second)
		w.want(200, "PATCH", "/v2/pods/"+id, `{"locked":true}`)
		w.want(409, "POST", "/v1/pods/"+id+"/reset", "")
		w.want(200, "GET", "/v2/pods?includeClusterPods=true", "")
		w.want(204, "DELETE", "/v2/pods/"+id, "")
		w.want(404, "GET", "/v2/pods/"+id, "")
		id = w.want(201, "POST", "/v2/pods", `{"name":"cpu","image":"img","cpu":{"id":"cpu5c","vcpuCount":4},"mounts":{"network":[{"volumeId":"vol1","path":"/vol"}]}}`).field("id")
		w.want(204, "POST", "/v2/pods/"+id+"/action", `{"action":"terminate"}`)
	})
}

func TestWireOfHeadRequests(t *testing.T) {
	golden(t, "head", func(w *testAPI) {
		id := w.want(201, "POST", "/v2/pods", gpuPod).field("id")
		w.want(200, "HEAD", "/v2/pods", "")
		w.want(200, "HEAD", "/v2/pods/"+id, "")
		w.want(200, "HEAD", "/v2/registries", "")
		w.want(200, "HEAD", "/v2/catalog/cpus/cpu3c", "")
		w.want(200, "HEAD", "/v2/echo/health", "")
		w.want(404, "HEAD", "/v2/pods/nobody", "")
		w.want(405, "HEAD", "/v2/echo/run", "")
		w.want(405, "HEAD", "/v2/echo/stream/some", "")
		w.want(405, "HEAD", "/v2/echo/status-sync/some", "")
		w.want(200, "HEAD", "/v2/pods/"+id+"/logs", "")
		w.want(200, "HEAD", "/v2/pods/"+id+"/logs?tail=0", "")
		w.want(405, "HEAD", "/v1/pods/"+id+"/reset", "")
	})
}

func TestWireOfLogs(t *testing.T) {
	golden(t, "logs", func(w *testAPI) {
		id := w.want(201, "POST", "/v2/pods", `{"name":"p","image":"talks","cpu":{"id":"cpu3c","vcpuCount":2}}`).field("id")
		advance(10 * time.Second)
		logs := "/v2/pods/" + id + "/logs"
		w.listen(time.Second, logs)
		w.listen(time.Second, logs+"?source=container&tail=2")
		w.listen(time.Second, logs+"?source=system&tail=1")
		w.listen(time.Second, logs+"?tail=0")
		w.listen(time.Second, logs+"?since=2000-01-01T00:00:01Z&tail=1")
		w.listen(time.Second, logs, "Last-Event-ID: 2000-01-01T00:00:01Z/000000000002")
		w.listen(time.Second, logs+"?since=2000-01-01T00:00:00Z&source=container", "Last-Event-ID: 2000-01-01T00:00:02Z")
		w.listen(100*time.Second, logs+"?tail=0&source=container")
	})
}

func TestWireOfRegistries(t *testing.T) {
	golden(t, "registries", func(w *testAPI) {
		w.want(200, "GET", "/v2/registries", "")
		id := w.want(201, "POST", "/v2/registries", `{"name":"hub","username":"u","password":"s3cret"}`).field("id")
		w.want(200, "GET", "/v2/registries/"+id, "")
		w.want(200, "GET", "/v2/registries", "")
		pod := w.want(201, "POST", "/v2/pods", `{"name":"p","image":"i","cpu":{"id":"cpu3c","vcpuCount":2},"registry":"`+id+`"}`).field("id")
		w.want(400, "DELETE", "/v2/registries/"+id, "")
		w.want(200, "PATCH", "/v2/pods/"+pod, `{"registry":null}`)
		w.want(400, "DELETE", "/v2/registries/"+id, "") // its container still needs it
		advance(10 * time.Second)
		w.want(200, "POST", "/v2/pods/"+pod+"/action", `{"action":"restart"}`)
		w.want(204, "DELETE", "/v2/registries/"+id, "")
	})
}

func TestWireOfVolumes(t *testing.T) {
	golden(t, "volumes", func(w *testAPI) {
		w.want(200, "GET", "/v2/network-volumes", "", "Authorization: Bearer "+bobKey)
		id := w.want(201, "POST", "/v2/network-volumes", `{"name":"models","size":10,"dataCenter":"EU-RO-1"}`).field("id")
		w.want(201, "POST", "/v2/network-volumes", `{"name":"fast","size":4096,"dataCenter":"EU-RO-1","type":"HIGH_PERFORMANCE"}`)
		w.want(200, "PATCH", "/v2/network-volumes/"+id, `{"name":"weights","size":20}`)
		w.want(200, "GET", "/v2/network-volumes/"+id, "")
		w.want(200, "GET", "/v2/network-volumes", "")
		pod := w.want(201, "POST", "/v2/pods", `{"name":"p","image":"i","cpu":{"id":"cpu3c","vcpuCount":2},"mounts":{"network":[{"volumeId":"`+id+`","path":"/v"}]}}`).field("id")
		w.want(400, "DELETE", "/v2/network-volumes/"+id, "")
		w.want(204, "DELETE", "/v2/pods/"+pod, "")
		advance(time.Second)
		w.want(204, "DELETE", "/v2/network-volumes/"+id, "")
		w.want(404, "GET", "/v2/network-volumes/"+id, "")
	})
}

func TestWireOfKeys(t *testing.T) {
	golden(t, "keys", func(w *testAPI) {
		admin := "Authorization: Bearer " + adminFree
		id := w.want(201, "POST", "/v2/account/keys", `{"scopes":["pods:read","endpoint:echo:run"],"expires":"2000-01-02T00:00:00+01:00"}`, admin).field("id")
		w.want(200, "GET", "/v2/account/keys/"+id, "", admin)
		w.want(200, "PATCH", "/v2/account/keys/"+id, `{"scopes":["*"],"expires":null}`, admin)
		w.want(200, "POST", "/v2/account/keys/"+id+"/rotate", `{"overlap":60000}`, admin)
		w.want(200, "GET", "/v2/account/keys", "", admin)
		w.want(204, "DELETE", "/v2/account/keys/"+id, "", admin)
		w.want(404, "GET", "/v2/account/keys/"+id, "", admin)
	})
}

func TestWireOfTemplates(t *testing.T) {
	golden(t, "templates", func(w *testAPI) {
		w.want(200, "GET", "/v2/templates", "")
		w.want(200, "GET", "/v2/catalog/templates", "")
		id := w.want(201, "POST", "/v2/templates", `{"name":"train","image":"org/train:1","args":"--fast","disk":20,"ports":["8888/http"],"env":{"A":"1","B":"1"},`+
			`"mounts":{"persistent":{"size":20,"path":"/workspace"}},"category":"NVIDIA","allowedCudaVersions":["12.8"],"public":true}`).field("id")
		w.want(201, "POST", "/v2/templates", `{"name":"worker","image":"org/worker:1","serverless":true,"startSsh":false,"startJupyter":false,"category":"CPU"}`)
		w.want(200, "PATCH", "/v2/templates/"+id, `{"name":"train 2","allowedCudaVersions":[],"mounts":{}}`)
		w.want(200, "GET", "/v2/templates/"+id, "")
		w.want(200, "GET", "/v2/templates", "")
		w.want(200, "GET", "/v2/catalog/templates?source=community", "", "Authorization: Bearer "+bobKey)
		w.want(200, "GET", "/v2/catalog/templates?source=community", "")
		w.want(200, "GET", "/v2/catalog/templates?source=verified", "")
		w.want(200, "GET", "/v2/templates/"+id, "", "Authorization: Bearer "+bobKey)
		w.want(404, "DELETE", "/v2/templates/"+id, "", "Authorization: Bearer "+bobKey)
		w.want(200, "PUT", "/v2/account/ssh-keys", `{"keys":["ssh-ed25519 AAAA alice@laptop"]}`)
		w.want(200, "GET", "/v2/account/ssh-keys", "")
		pod := w.want(201, "POST", "/v2/pods", `{"name":"p","templateId":"`+id+`","gpu":{"id":"NVIDIA H200"},"env":{"B":"2"},"disk":30}`).field("id")
		w.want(200, "PATCH", "/v2/pods/"+pod, `{"templateId":"podyard-web","env":{"C":"3"}}`)
		w.want(400, "DELETE", "/v2/templates/"+id, "")
		w.want(204, "DELETE", "/v2/pods/"+pod, "")
		w.want(204, "DELETE", "/v2/templates/"+id, "")
		w.want(201, "POST", "/v2/pods", `{"name":"web","templateId":"podyard-web","cpu":{"id":"cpu3c","vcpuCount":2}}`)
		w.want(200, "PUT", "/v2/account/ssh-keys", `{"keys":[]}`)
	})
}

func TestWireOfCatalog(t *testing.T) {
	golden(t, "catalog", func(w *testAPI) {
		w.want(200, "GET", "/v2/catalog/gpus", "")
		w.want(200, "GET", "/v2/catalog/gpus/NVIDIA%20H200", "")
		w.want(200, "GET", "/v2/catalog/gpus/AMD%20Instinct%20MI300X%20OAM", "")
		w.want(200, "GET", "/v2/catalog/cpus", "")
		w.want(200, "GET", "/v2/catalog/cpus/cpu5m", "")
		w.want(200, "GET", "/v2/catalog/datacenters", "")
		w.want(200, "GET", "/v2/catalog/datacenters?regions=ASIA,OCEANIA", "")
		w.want(200, "GET", "/v2/catalog/datacenters?globalNetwork=true&networkVolumeTypes=HIGH_PERFORMANCE&compliance=HIPAA", "")
		w.want(200, "GET", "/v2/catalog/datacenters/EU-NL-1", "")
	})
}

func TestWireOfBilling(t *testing.T) {
	golden(t, "billing", func(w *testAPI) {
		w.want(200, "GET", "/v2/billing", "")
		vol := w.want(201, "POST", "/v2/network-volumes", `{"name":"v","size":100,"dataCenter":"EU-RO-1"}`).field("id")
		id := w.want(201, "POST", "/v2/pods", `{"name":"p","image":"i","gpu":{"id":"NVIDIA H200","count":2}}`).field("id")
		w.want(201, "POST", "/v2/pods", `{"name":"p","image":"i","cpu":{"id":"cpu3c","vcpuCount":2},"mounts":{"network":[{"volumeId":"`+vol+`","path":"/v"}]}}`)
		advance(90 * time.Minute)
		w.want(200, "PATCH", "/v2/network-volumes/"+vol, `{"size":200}`)
		w.want(204, "DELETE", "/v2/pods/"+id, "")
		advance(90 * time.Minute)
		w.want(200, "GET", "/v2/billing?bucketSize=hour&lastN=4", "")
		w.want(200, "GET", "/v2/billing/pods?bucketSize=hour&lastN=4", "")
		w.want(200, "GET", "/v2/billing/pods?podId="+id, "")
		w.want(200, "GET", "/v2/billing/network-volumes?bucketSize=year&startTime=2000-01-01T00:00:00Z", "")
		w.want(200, "GET", "/v2/billing/network-volumes?networkVolumeId="+vol+"&bucketSize=hour", "")
		w.want(200, "GET", "/v2/billing/pods", "", "Authorization: Bearer "+bobKey)
	})
}

func TestWireOfAvailability(t *testing.T) {
	golden(t, "availability", func(w *testAPI) {
		const h200 = "/v2/catalog/gpus/NVIDIA%20H200"
		w.want(200, "GET", h200+"?include=AVAILABILITY&product=POD", "")
		w.want(201, "POST", "/v2/pods", `{"name":"p","image":"i","gpu":{"id":"NVIDIA H200","count":8},"dataCenterIds":["AP-JP-1"]}`)
		w.want(201, "POST", "/v2/pods", `{"name":"p","image":"i","gpu":{"id":"NVIDIA H200","count":5},"dataCenterIds":["AP-JP-1"]}`)
		w.want(200, "GET", h200+"?include=AVAILABILITY&product=POD&countryCodes=JP,FR", "")
		w.want(200, "GET", h200+"?include=AVAILABILITY&product=POD,SERVERLESS&count=4&countryCodes=JP", "")
		w.want(200, "GET", h200+"?include=AVAILABILITY&product=POD&cloud=COMMUNITY&minCudaVersion=12", "")
		w.want(200, "GET", h200+"?include=AVAILABILITY&product=POD&cudaVersions=12.4", "")
		w.want(200, "GET", h200+"?include=AVAILABILITY&product=CLUSTER", "")
		w.want(200, "GET", "/v2/catalog/gpus/AMD%20Instinct%20MI300X%20OAM?include=AVAILABILITY&product=POD", "")
		w.want(200, "GET", "/v2/catalog/gpus?include=AVAILABILITY&product=POD&countryCodes=CZ", "")
		w.want(200, "GET", "/v2/catalog/cpus/cpu5m?include=AVAILABILITY&product=POD&vcpuCount=16", "")
		w.want(200, "GET", "/v2/catalog/cpus/cpu5m?include=AVAILABILITY&product=SERVERLESS&vcpuCount=32", "")
		w.want(200, "GET", "/v2/catalog/datacenters/AP-JP-1?include=GPU_AVAILABILITY,CPU_AVAILABILITY", "")
		w.want(200, "GET", "/v2/catalog/datacenters?include=GPU_AVAILABILITY&regions=OCEANIA", "")
	})
}

func TestWireOfJobs(t *testing.T) {
	golden(t, "jobs", func(w *testAPI) {
		id := w.want(200, "POST", "/v2/echo/run", `{"input":{"b":1.0,"a":"é\u00e9","a":1e2},"more":1}`).field("id")
		advance(time.Second)
		w.want(200, "GET", "/v2/echo/status/"+id, "", "Authorization: "+aliceKey)
		w.want(200, "POST", "/v2/echo/status/"+id, "{}")
		w.want(200, "GET", "/v2/echo/status/"+id+"?ttl=60000", "")
		w.want(200, "GET", "/v2/echo/status-sync/"+id, "")
		w.want(200, "POST", "/v2/echo/cancel/"+id, "null")
		advance(time.Minute)
		w.want(404, "GET", "/v2/echo/status/"+id, "")

		w.want(200, "POST", "/v2/echo/runsync", `{"input":{}}`, "Content-Type: application/x-www-form-urlencoded")
		slow := w.want(200, "POST", "/v2/echo/runsync?wait=1000", `{"input":{"do":"progress","ms":5000}}`).field("id")
		w.want(200, "GET", "/v2/echo/status-sync/"+slow+"?wait=1000", "")
		w.want(200, "POST", "/v2/echo/status-sync/"+slow, "")

		failed := w.want(200, "POST", "/v2/echo/runsync", `{"input":{"do":"fail"}}`).field("id")
		w.want(200, "POST", "/v2/echo/retry/"+failed, "")
		advance(time.Second)
		w.want(200, "GET", "/v2/echo/status/"+failed, "")

		over := w.want(200, "POST", "/v2/echo/run", `{"input":{"ms":60000},"policy":{"executionTimeout":5000,"ttl":86400000,"lowPriority":true},`+
			`"s3Config":{"accessId":"AK","accessSecret":"hidden","bucketName":"b","endpointUrl":"http://s3"},"webhook":"http://example.com/hook"}`).field("id")
		advance(time.Second)
		w.want(200, "GET", "/v2/echo/status/"+over, "")
		advance(time.Minute)
		w.want(200, "GET", "/v2/echo/status/"+over, "")

		queued := w.want(200, "POST", "/v2/idle/run", `{"input":{"n":1}}`).field("id")
		w.want(200, "GET", "/v2/idle/status/"+queued, "")
		w.want(200, "POST", "/v2/idle/cancel/"+queued, "{}")
		w.want(200, "GET", "/v2/idle/status/"+queued, "")
		w.want(200, "POST", "/v2/idle/run", `{"input":{"n":2}}`)
		advance(time.Second)
		w.want(200, "POST", "/v2/idle/run", `{"input":{"n":3}}`)
		w.want(200, "GET", "/v2/idle/health", "")
		w.want(200, "GET", "/v2/idle/requests", "")
		w.want(200, "GET", "/v2/idle/requests?limit=1&offset=1", "")
		w.want(200, "GET", "/v2/idle/requests?limit=2&full=true", "")
		w.want(200, "GET", "/v2/idle/requests?status=CANCELLED,COMPLETED", "")
		w.want(200, "POST", "/v2/idle/purge-queue", "{}")
		w.want(200, "GET", "/v2/idle/requests?offset=10", "")
		w.want(200, "GET", "/v2/echo/health", "")
	})
}

func TestWireOfStreams(t *testing.T) {
	golden(t, "streams", func(w *testAPI) {
		streaming := func() string {
			id := w.want(200, "POST", "/v2/echo/run", `{"input":{"do":"stream"}}`).field("id")
			advance(time.Second)
			return "/v2/echo/stream/" + id
		}
		s := streaming()
		w.want(200, "GET", s, "")
		w.want(200, "GET", s, "")
		s = streaming()
		w.want(200, "POST", s, "")
		w.want(200, "POST", s, "")
		s = streaming()
		w.want(200, "POST", s+"?format=array", "")
		w.want(200, "GET", s+"?format=envelope", "")
		w.want(200, "GET", streaming(), "", "User-Agent: RunPod-JS-SDK/1.1.2")
		w.want(200, "GET", streaming(), "", "User-Agent: python-requests/2.32.3", "Content-Type: application/json")
		w.want(200, "GET", streaming(), "", "User-Agent: Python/3.12 aiohttp/3.11", "Content-Type: application/json")
		w.want(200, "GET", streaming(), "", "User-Agent: python-requests/2.32.3")
		queued := w.want(200, "POST", "/v2/idle/run", `{"input":{}}`).field("id")
		w.want(200, "GET", "/v2/idle/stream/"+queued, "")
		w.want(200, "GET", "/v2/idle/stream/"+queued+"?wait=1000", "", "User-Agent: runpod-go/1.0.0")
	})
}

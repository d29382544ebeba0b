package double_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/apitest"
	"github.com/podyard/podyard/httpapi/double"
)

var update = flag.Bool("update", false, "write COVERAGE.md")

const trainingCluster = `{"name":"train","type":"TRAINING","image":"i","compute":{"gpuTypeId":"NVIDIA GeForce RTX 4090","gpuCountPerPod":1,"podCount":2}}`

// A seeded has the ids of everything that scenarios use.
type seeded struct {
	*apitest.Server
	pod, registry, secret, endpoint, volume, template, key, schedule, batch, cluster string
	queued, done, failed, streamed, hooked                                           string
}

func everything(t *testing.T) *seeded {
	t.Helper()
	s := apitest.Start(t)
	s.Queue("q")
	s.Handle("echo", echo)
	s.Endpoint("script").When(obj{"to": "fail"}).Fail("no").When(obj{"to": "stream"}).Stream("a", "b").Stream(obj{"choices": []any{}})
	id := func(path, body string) string {
		t.Helper()
		return want(t, s, 201, "POST", path, body).field("id")
	}
	m := &seeded{Server: s}
	m.registry = id("/v2/registries", `{"name":"r","username":"u","password":"p"}`)
	m.secret = id("/v2/account/secrets", `{"name":"s","value":"v"}`)
	m.volume = id("/v2/network-volumes", `{"name":"v","size":10,"dataCenter":"US-KS-2"}`)
	m.template = id("/v2/templates", `{"name":"t","image":"i","category":"CPU"}`)
	m.key = id("/v2/account/keys", `{"scopes":["*"]}`)
	m.endpoint = id("/v2/serverless", `{"name":"e","type":"QUEUE","image":"i","cpu":[{"id":"cpu3c","vcpuCount":2}],"scaling":{"type":"QUEUE_DELAY","queueDelay":4}}`)
	s.Queue("drafts")
	m.batch = want(t, s, 200, "POST", "/v2/drafts/batch", `[{"input":{}}]`).field("id")
	m.schedule = id("/v2/q/schedules", `{"cron":"0 0 * * *","run":{"input":{}}}`)
	m.pod = id("/v2/pods", pod)
	m.cluster = id("/v2/clusters", trainingCluster)
	m.queued = run(t, s, "q", `{"input":{}}`)
	m.done = run(t, s, "echo", `{"input":{}}`)
	m.failed = run(t, s, "script", `{"input":{"to":"fail"}}`)
	m.streamed = run(t, s, "script", `{"input":{"to":"stream"}}`)
	m.hooked = run(t, s, "echo", `{"input":{},"webhook":"http://client.test/"}`)
	s.Advance(time.Second)
	return m
}

// A scenario is a request with its answer.
type scenario struct {
	operation    string
	method, path string
	body         string
	status       int
	answer       string // a part of it
}

// scenarios are requests with their answers, at least one for each operation. Placeholders
// stand for ids.
var scenarios = []scenario{
	{"openapi", "GET", "/v2/openapi.json", "", 200, `"openapi":"3.1.0"`},
	{"listPods", "GET", "/v2/pods", "", 200, `"name":"web"`},
	{"createPod", "POST", "/v2/pods", pod, 201, `"status":"PROVISIONING"`},
	{"listClusters", "GET", "/v2/clusters", "", 200, `"name":"train"`},
	{"createCluster", "POST", "/v2/clusters", trainingCluster, 201, `"podCount":2`},
	{"getCluster", "GET", "/v2/clusters/{cluster}", "", 200, `"byStatus":{"RUNNING":2}`},
	{"updateCluster", "PATCH", "/v2/clusters/{cluster}", `{"name":"other"}`, 200, `"name":"other"`},
	{"deleteCluster", "DELETE", "/v2/clusters/{cluster}", "", 204, ""},
	{"listClusterPods", "GET", "/v2/clusters/{cluster}/pods", "", 200, `"rank":1`},
	{"getPod", "GET", "/v2/pods/{pod}", "", 200, `"status":"RUNNING"`},
	{"updatePod", "PATCH", "/v2/pods/{pod}", `{"name":"other"}`, 200, `"name":"other"`},
	{"deletePod", "DELETE", "/v2/pods/{pod}", "", 204, ""},
	{"podAction", "POST", "/v2/pods/{pod}/action", `{"action":"stop"}`, 200, `"id"`},
	{"getPodOptions", "GET", "/v2/pods/{pod}/options", "", 200, `"stopGrace":10000,`},
	{"whyPod", "GET", "/v2/pods/{pod}/why", "", 200, `"status":"RUNNING","why":null`},
	{"getPodLogs", "GET", "/v2/pods/{pod}/logs?source=container", "", 200, `"line":"ready"`},
	{"execPod", "POST", "/v2/pods/{pod}/exec", `{"command":["cat"],"stdin":"hello"}`, 200, `{"exitCode":0,"stdout":"hello","stderr":"","truncated":false}`},
	{"podTerminal", "GET", "/v2/pods/{pod}/terminal", "", 400, "this path is for WebSockets"},
	{"getPodFiles", "GET", "/v2/pods/{pod}/files?path=/a", "", 501, "lacks tar"},
	{"putPodFiles", "PUT", "/v2/pods/{pod}/files?path=/a", "", 501, "lacks tar"},
	{"resetPod", "POST", "/v1/pods/{pod}/reset", "", 200, `"id"`},

	{"listNetworkVolumes", "GET", "/v2/network-volumes", "", 200, `"name":"v"`},
	{"createNetworkVolume", "POST", "/v2/network-volumes", `{"name":"w","size":10,"dataCenter":"US-KS-2"}`, 201, `"id"`},
	{"getNetworkVolume", "GET", "/v2/network-volumes/{volume}", "", 200, `"name":"v"`},
	{"updateNetworkVolume", "PATCH", "/v2/network-volumes/{volume}", `{"name":"w"}`, 200, `"name":"w"`},
	{"deleteNetworkVolume", "DELETE", "/v2/network-volumes/{volume}", "", 204, ""},

	{"listGlobalVolumes", "GET", "/v2/global-volumes", "", 200, `[]`},

	{"listTemplates", "GET", "/v2/templates", "", 200, `"name":"t"`},
	{"createTemplate", "POST", "/v2/templates", `{"name":"u","image":"i","category":"CPU"}`, 201, `"id"`},
	{"getTemplate", "GET", "/v2/templates/{template}", "", 200, `"name":"t"`},
	{"updateTemplate", "PATCH", "/v2/templates/{template}", `{"name":"u"}`, 200, `"name":"u"`},
	{"deleteTemplate", "DELETE", "/v2/templates/{template}", "", 204, ""},
	{"listPublicTemplates", "GET", "/v2/catalog/templates", "", 200, `"templates"`},

	{"listKeys", "GET", "/v2/account/keys", "", 200, `"user":"tester"`},
	{"createKey", "POST", "/v2/account/keys", `{"scopes":["pods:read"],"expires":"2099-01-01T00:00:00Z"}`, 201, `"key":"py_`},
	{"getKey", "GET", "/v2/account/keys/{key}", "", 200, `"scopes":["*"]`},
	{"updateKey", "PATCH", "/v2/account/keys/{key}", `{"scopes":["pods:read"]}`, 200, `"scopes":["pods:read"]`},
	{"rotateKey", "POST", "/v2/account/keys/{key}/rotate", `{"overlap":60000}`, 200, `"key":"py_`},
	{"deleteKey", "DELETE", "/v2/account/keys/{key}", "", 204, ""},
	{"listSecrets", "GET", "/v2/account/secrets", "", 200, `"name":"s"`},
	{"createSecret", "POST", "/v2/account/secrets", `{"name":"other","value":"v","description":"d"}`, 201, `"description":"d"`},
	{"getSecret", "GET", "/v2/account/secrets/{secret}", "", 200, `"name":"s"`},
	{"updateSecret", "PATCH", "/v2/account/secrets/{secret}", `{"value":"w"}`, 200, `"name":"s"`},
	{"deleteSecret", "DELETE", "/v2/account/secrets/{secret}", "", 204, ""},
	{"listLimits", "GET", "/v2/account/limits", "", 200, `"name":"pods"`},
	{"getSshKeys", "GET", "/v2/account/ssh-keys", "", 200, `[]`},
	{"updateSshKeys", "PUT", "/v2/account/ssh-keys", `{"keys":[]}`, 200, `[]`},

	{"listClusterBilling", "GET", "/v2/billing/clusters", "", 200, `"uniqueClusterCount":1`},
	{"listBilling", "GET", "/v2/billing", "", 200, `[`},
	{"listPodBilling", "GET", "/v2/billing/pods", "", 200, `[`},
	{"listServerlessBilling", "GET", "/v2/billing/serverless", "", 200, `[`},
	{"listNetworkVolumeBilling", "GET", "/v2/billing/network-volumes", "", 200, `[`},

	{"listEndpointBilling", "GET", "/v2/billing/endpoints", "", 200, `[]`},

	{"listRegistries", "GET", "/v2/registries", "", 200, `"name":"r"`},
	{"createRegistry", "POST", "/v2/registries", `{"name":"s","username":"u","password":"p"}`, 201, `"id"`},
	{"getRegistry", "GET", "/v2/registries/{registry}", "", 200, `"name":"r"`},
	{"deleteRegistry", "DELETE", "/v2/registries/{registry}", "", 204, ""},

	{"listEndpoints", "GET", "/v2/serverless", "", 200, `"name":"e"`},
	{"createEndpoint", "POST", "/v2/serverless", `{"name":"f","type":"QUEUE","image":"i","cpu":[{"id":"cpu3c","vcpuCount":2}],"scaling":{"type":"QUEUE_DELAY","queueDelay":4}}`, 201, `"id"`},
	{"getEndpoint", "GET", "/v2/serverless/{endpoint}", "", 200, `"name":"e"`},
	{"updateEndpoint", "PATCH", "/v2/serverless/{endpoint}", `{"name":"f"}`, 200, `"name":"f"`},
	{"deleteEndpoint", "DELETE", "/v2/serverless/{endpoint}", "", 204, ""},
	{"listEndpointReleases", "GET", "/v2/serverless/{endpoint}/releases", "", 200, `[`},
	{"listEndpointBuilds", "GET", "/v2/serverless/{endpoint}/builds", "", 200, `[]`},
	{"getEndpointBuild", "GET", "/v2/serverless/{endpoint}/builds/x", "", 404, `build not found`},
	{"listEndpointWorkers", "GET", "/v2/serverless/{endpoint}/workers", "", 200, `[`},
	{"getWorkerLogs", "GET", "/v2/serverless/{endpoint}/workers/none/logs", "", 404, `not found`},
	{"stopWorker", "DELETE", "/v2/serverless/{endpoint}/workers/none", "", 404, `worker not found`},
	{"getEndpointQueue", "GET", "/v2/serverless/{endpoint}/queue", "", 200, `"ageing":60000`},
	{"updateEndpointQueue", "PATCH", "/v2/serverless/{endpoint}/queue", `{"paused":true}`, 200, `"paused":true`},
	{"listDecisions", "GET", "/v2/serverless/{endpoint}/decisions", "", 200, `[`},
	{"listWebhooks", "GET", "/v2/serverless/echo/deliveries", "", 200, `"state":"delivered"`},
	{"listDeliveries", "GET", "/v2/serverless/echo/deliveries/{hooked}", "", 200, `200`},
	{"redeliver", "POST", "/v2/serverless/echo/deliveries/{hooked}/redeliver", "", 200, `msg_`},

	{"listEndpointJobs", "GET", "/v2/serverless/echo/jobs?limit=1", "", 200, `"status":"COMPLETED"`},

	{"listAudit", "GET", "/v2/admin/audit?operation=createPod", "", 200, `"user":"tester"`},
	{"reload", "POST", "/v2/admin/reload", "", 501, `no configuration that can be read anew`},

	{"cordon", "POST", "/v2/admin/cordon", `{"endpoint":"{endpoint}"}`, 200, `"state":"cordoned"`},
	{"uncordon", "POST", "/v2/admin/uncordon", `{"server":"server"}`, 200, `"ready":true`},
	{"drain", "POST", "/v2/admin/drain", `{"host":"us-tx-3-secure"}`, 200, `"state":"cordoned"`},
	{"adminState", "GET", "/v2/admin/state", "", 200, `"hosts":[{"id":`},
	{"deleteUser", "DELETE", "/v2/admin/users/nobody", "", 404, "user not found"},
	{"deleteUserJobs", "DELETE", "/v2/admin/users/nobody/jobs", "", 200, `{"jobs":0}`},

	{"listGpuTypes", "GET", "/v2/catalog/gpus", "", 200, `"NVIDIA`},
	{"getGpuType", "GET", "/v2/catalog/gpus/NVIDIA%20GeForce%20RTX%204090", "", 200, `"memory":24`},
	{"listCpuTypes", "GET", "/v2/catalog/cpus", "", 200, `"cpu3c"`},
	{"getCpuType", "GET", "/v2/catalog/cpus/cpu3c", "", 200, `"cpu3c"`},
	{"listDataCenters", "GET", "/v2/catalog/datacenters", "", 200, `"US-KS-2"`},
	{"getDataCenter", "GET", "/v2/catalog/datacenters/US-KS-2", "", 200, `"US-KS-2"`},

	{"run", "POST", "/v2/q/run", `{"input":{}}`, 200, `"IN_QUEUE"`},
	{"runSync", "POST", "/v2/echo/runsync", `{"input":{"a":1}}`, 200, `"output":{"a":1}`},
	{"status", "GET", "/v2/echo/status/{done}", "", 200, `"COMPLETED"`},
	{"status", "POST", "/v2/echo/status/{done}", "", 200, `"COMPLETED"`},
	{"statusSync", "GET", "/v2/echo/status-sync/{done}", "", 200, `"COMPLETED"`},
	{"stream", "GET", "/v2/script/stream/{streamed}", "", 200, `{"output":"b","metrics":{}}`},
	{"cancel", "POST", "/v2/q/cancel/{queued}", "", 200, `"CANCELLED"`},
	{"retry", "POST", "/v2/script/retry/{failed}", "", 200, `"IN_QUEUE"`},
	{"listAttempts", "GET", "/v2/script/attempts/{failed}", "", 200, `"number":1,"status":"FAILED","error":"no"`},
	{"jobLog", "GET", "/v2/script/log/{failed}", "", 200, `"lines":[],"dropped":0`},
	{"listDeadLetters", "GET", "/v2/q/dead", "", 200, `{"dead":[]}`},
	{"getDeadLetter", "GET", "/v2/q/dead/{queued}", "", 404, "dead letter not found"},
	{"redriveDeadLetter", "POST", "/v2/q/dead/{queued}/redrive", "", 404, "dead letter not found"},
	{"deleteDeadLetter", "DELETE", "/v2/q/dead/{queued}", "", 404, "dead letter not found"},
	{"purgeQueue", "POST", "/v2/q/purge-queue", "", 200, `{"removed":1,"status":"completed"}`},
	{"actions", "POST", "/v2/q/actions", `{"action":"cancel","filter":{"ids":["{queued}"]}}`, 200, `{"matched":1,"done":1,"failed":[],"cursor":null}`},
	{"health", "GET", "/v2/q/health", "", 200, `"inQueue":1`},
	{"requests", "GET", "/v2/q/requests", "", 200, `"total":1`},
	{"jobEvents", "GET", "/v2/q/events?types=queued", "", 200, ""},
	{"listBatches", "GET", "/v2/drafts/batch", "", 200, `"requestTotal":1`},
	{"createBatch", "POST", "/v2/drafts/batch", `{"requests":[{"input":{}}],"finalize":true}`, 200, `"FINALIZED"`},
	{"getBatch", "GET", "/v2/drafts/batch/{batch}", "", 200, `"DRAFT"`},
	{"updateBatch", "PUT", "/v2/drafts/batch/{batch}", `{"name":"n"}`, 200, `"name":"n"`},
	{"addToBatch", "POST", "/v2/drafts/batch/{batch}/requests", `{"requests":[{"input":{}}]}`, 200, `"requestTotal":2`},
	{"listBatchRequests", "GET", "/v2/drafts/batch/{batch}/requests", "", 200, `"IN_QUEUE"`},
	{"deleteBatchRequest", "DELETE", "/v2/drafts/batch/{batch}/requests/{batch}-0", "", 200, `"requestTotal":0`},
	{"finalizeBatch", "POST", "/v2/drafts/batch/{batch}/finalize", "", 200, `"FINALIZED"`},
	{"cancelBatch", "POST", "/v2/drafts/batch/{batch}/cancel", "", 200, `"CANCELLED"`},
	{"listSchedules", "GET", "/v2/q/schedules", "", 200, `"cron":"0 0 * * *"`},
	{"createSchedule", "POST", "/v2/q/schedules", `{"cron":"* * * * *","run":{"input":{}}}`, 201, `"next":"2026-01-01T00:01:00.000Z"`},
	{"getSchedule", "GET", "/v2/q/schedules/{schedule}", "", 200, `"timeZone":"UTC"`},
	{"updateSchedule", "PATCH", "/v2/q/schedules/{schedule}", `{"enabled":false}`, 200, `"next":null`},
	{"deleteSchedule", "DELETE", "/v2/q/schedules/{schedule}", "", 204, ""},
	{"runSchedule", "POST", "/v2/q/schedules/{schedule}/run", "", 200, `"IN_QUEUE"`},
	{"metrics", "GET", "/v2/echo/metrics", "", 200, `"readyWorkers":["local-echo"]`},
	{"openai", "POST", "/v2/script/openai/v1/chat/completions", `{"model":"m","messages":[]}`, 200, `{"choices":[]}`},

	{"jobTake", "GET", "/v2/q/job-take/w1", "", 200, `"id"`},
	{"jobTakeBatch", "GET", "/v2/q/job-take-batch/w1?batch_size=2", "", 200, `[{`},
	{"jobStop", "GET", "/v2/q/job-stop/w1", "", 204, ""},
	{"ping", "GET", "/v2/q/ping/w1", "", 200, ``},
	{"jobDone", "POST", "/v2/q/job-done/w1/{queued}", `{"output":1}`, 200, `"accepted":`},
	{"proxy", "GET", "/lb/q/x", "", 400, `the endpoint has a queue`},
	{"jobStream", "POST", "/v2/q/job-stream/w1/{queued}", `{"output":1}`, 200, `"accepted":`},
}

func (m *seeded) fill(path string) string {
	return strings.NewReplacer(
		"{pod}", m.pod, "{cluster}", m.cluster, "{registry}", m.registry, "{secret}", m.secret, "{endpoint}", m.endpoint, "{volume}", m.volume, "{template}", m.template, "{key}", m.key, "{schedule}", m.schedule, "{batch}", m.batch,
		"{queued}", m.queued, "{done}", m.done, "{failed}", m.failed, "{streamed}", m.streamed, "{hooked}", m.hooked,
	).Replace(path)
}

func TestOperations(t *testing.T) {
	for _, tt := range scenarios {
		t.Run(tt.operation, func(t *testing.T) {
			m := everything(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, tt.method, double.BaseURL+m.fill(tt.path), strings.NewReader(m.fill(tt.body)))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			if tt.operation == "jobStop" {
				go func() { // it is held until the clock ends it
					for !slices.ContainsFunc(m.Double.Requests(), func(e double.Entry) bool { return e.Operation == "jobStop" }) {
						_ = m.Double.Advance(ctx, 0)
					}
					_ = m.Double.Advance(ctx, time.Minute)
				}()
			}
			res, err := m.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			var body strings.Builder
			for buf := make([]byte, 4096); !strings.Contains(body.String(), tt.answer); {
				n, err := res.Body.Read(buf)
				body.Write(buf[:n])
				if err != nil {
					break
				}
			}
			if res.StatusCode != tt.status || !strings.Contains(body.String(), tt.answer) {
				t.Errorf("%s %s = %d %s, want %d with %s", tt.method, tt.path, res.StatusCode, body.String(), tt.status, tt.answer)
			}
			cancel()
			m.RequireRequest(t, apitest.RequestMatch{Operation: tt.operation, Method: tt.method, Path: strings.Split(r.URL.Path, "?")[0]})
		})
	}
}

// Every operation has a scenario or is refused.
func TestEveryOperationIsCovered(t *testing.T) {
	s := apitest.Start(t)
	for _, o := range httpapi.Operations() {
		covered := slices.ContainsFunc(scenarios, func(sc scenario) bool { return sc.operation == o.Name })
		switch {
		case o.NotOffered == "" && !covered:
			t.Errorf("operation %s has no scenario", o.Name)
		case o.NotOffered != "":
			path := strings.NewReplacer("{id}", "x").Replace(o.Path)
			if a := call(t, s, o.Methods[0], path, ""); a.code != refusal(o) || !strings.Contains(a.body, o.NotOffered) {
				t.Errorf("%s %s = %d %s, want the refusal %q", o.Methods[0], path, a.code, a.body, o.NotOffered)
			}
		}
	}
}

// refusal is the status of an operation that is not offered.
func refusal(o httpapi.Operation) int {
	if o.Name == "createGlobalVolume" {
		return 400
	}
	return 404
}

// coverageHead is the beginning of COVERAGE.md. The operations that are answered are listed in
// docs/interface.md.
const coverageHead = `# What the double answers

The double answers every operation of [the interface](../../docs/interface.md#4-operations) with the handlers of the
product, and refuses what the product refuses. TestOperations makes a request to each of them
and looks into the journal for it; TestEveryOperationIsCovered fails when one has no request.

The images of load-balancing endpoints run nothing. A test says what their workers answer: ImageHTTP,
ImageAnswers or ImageForward, over HTTP "answers" or "forward" of an image. Workers of other images
are never healthy. Connections to workers are in memory. The 330 s without a byte of an answer after
which a request is a 524 are of the wall.

These operations of the published description are not offered by the product, and the double
refuses them in the same words. The list is generated: ` + "`go test ./httpapi/double -run Coverage -update`" + `.

| Operation | Request | Answer |
|---|---|---|
`

func TestCoveragePageIsCurrent(t *testing.T) {
	var b strings.Builder
	b.WriteString(coverageHead)
	for _, o := range httpapi.Operations() {
		if o.NotOffered != "" {
			fmt.Fprintf(&b, "| %s | `%s %s` | %d: %s |\n", o.Name, strings.Join(o.Methods, ", "), o.Path, refusal(o), o.NotOffered)
		}
	}
	if *update {
		if err := os.WriteFile("COVERAGE.md", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("COVERAGE.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.String(), strings.ReplaceAll(string(got), "\r\n", "\n")); diff != "" {
		t.Errorf("COVERAGE.md is not what -update makes (-want +got):\n%s", diff)
	}
}

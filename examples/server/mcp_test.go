//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/examples/server/demo"
)

// mcpPackages are the versions of the npm packages that are tried.
var mcpPackages = map[string]string{"@runpod/mcp-server": "4.0.0", "@modelcontextprotocol/sdk": "1.32.2"}

// An mcpClient calls tools of the public MCP server, which runs over stdio and calls ours.
type mcpClient struct {
	t     *testing.T
	in    io.WriteCloser
	out   *bufio.Scanner
	tools []string
	used  map[string]bool
}

// startMCP starts the MCP server for an agent. Nothing it asks leaves the machine.
func startMCP(t *testing.T, in *instance) *mcpClient {
	t.Helper()
	path, modules := node(t, mcpPackages)
	cmd := exec.Command(path, filepath.Join("testdata", "mcp.cjs"))
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules, "RUNPOD_API_KEY="+in.key,
		"RUNPOD_API_BASE_URL="+in.url, "RUNPOD_SERVERLESS_API_URL="+in.url+"/v2",
		"RUNPOD_PUBLIC_GRAPHQL_URL="+in.url+"/graphql", "RUNPOD_AUTHED_GRAPHQL_URL="+in.url+"/graphql")
	stderr := &buffer{}
	cmd.Stderr = stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a := &mcpClient{t: t, in: stdin, out: bufio.NewScanner(stdout), used: map[string]bool{}}
	a.out.Buffer(nil, 16<<20)
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("node: %v\n%s", err, stderr.String())
		}
	})
	a.read(&a.tools)
	return a
}

func (a *mcpClient) read(v any) {
	a.t.Helper()
	if !a.out.Scan() {
		a.t.Fatalf("the client ended: %v", a.out.Err())
	}
	if err := json.Unmarshal(a.out.Bytes(), v); err != nil {
		a.t.Fatalf("%v: %s", err, a.out.Bytes())
	}
}

// call calls a tool and returns what it answers, and whether as an error.
func (a *mcpClient) call(tool string, args obj) (payload obj, failed bool) {
	a.t.Helper()
	a.used[tool] = true
	if args == nil {
		args = obj{}
	}
	if err := json.NewEncoder(a.in).Encode(obj{"tool": tool, "args": args}); err != nil {
		a.t.Fatal(err)
	}
	var answer struct {
		Error   bool
		Payload obj
	}
	a.read(&answer)
	return answer.Payload, answer.Error
}

// must is call for a tool that has to succeed.
func (a *mcpClient) must(tool string, args obj) obj {
	a.t.Helper()
	payload, failed := a.call(tool, args)
	if failed {
		a.t.Fatalf("%s %v: %v", tool, args, payload)
	}
	return payload
}

// gives compares members of what a tool answers.
func (a *mcpClient) gives(tool string, args, want obj) obj {
	a.t.Helper()
	got := a.must(tool, args)
	seen := obj{}
	for name := range want {
		seen[name] = got[name]
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		a.t.Errorf("%s %v (-want +got):\n%s", tool, args, diff)
	}
	return got
}

// refuses calls a tool whose answer has to be an error that says why.
func (a *mcpClient) refuses(tool string, args obj, why string) {
	a.t.Helper()
	payload, failed := a.call(tool, args)
	b, err := json.Marshal(payload)
	if err != nil {
		a.t.Fatal(err)
	}
	if !failed || !strings.Contains(string(b), why) {
		a.t.Errorf("%s %v: error %v, %s; want an error with %q", tool, args, failed, b, why)
	}
}

// each lists one member of every object of a list.
func each(list any, member string) (out []string) {
	items, _ := list.([]any)
	for _, item := range items {
		o, _ := item.(obj)
		s, _ := o[member].(string)
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

// lists compares one member of every object that a tool lists, in order of the alphabet.
func (a *mcpClient) lists(tool string, args obj, member, key string, want ...string) {
	a.t.Helper()
	if diff := cmp.Diff(want, each(a.must(tool, args)[member], key)); diff != "" {
		a.t.Errorf("%s (-want +got):\n%s", tool, diff)
	}
}

func id(o obj) string {
	s, _ := o["id"].(string)
	return s
}

// elsewhere are tools for what this service does not have.
var elsewhere = []struct {
	why   string
	says  string
	tools map[string]obj
}{
	{"credentials for images are not delegated", "not offered", map[string]obj{
		"list-delegations": {}, "create-delegation": {"body": obj{"name": "d"}}, "revoke-delegation": {"id": "x"},
	}},
	{"images are not built here", "build not found", map[string]obj{"get-endpoint-build": {"id": "echo", "buildId": "x"}}},
	{"GraphQL is not served: neither the hub nor public endpoints nor the stock by CUDA version", "The requested path was not found.", map[string]obj{
		"get-capacity": {}, "list-hub-repos": {}, "deploy-hub-repo": {"repo": "a/b"}, "list-public-endpoints": {},
	}},
}

func TestTheMCPServersToolsWorkUnchanged(t *testing.T) {
	t.Parallel()
	worker := `["/bin/sh","-c","echo ready to greet; exec \"$0\" ` + demo.HelloCommand + `",` + strconv.Quote(program) + `]`
	a := startMCP(t, start(t, "-config", file(t, `{"catalog":"sample","images":{"local/greet":{"command":`+worker+`}}}`)))
	a.catalog()
	a.registries()
	a.volumes()
	a.templates()
	a.pods()
	a.clusters()
	endpoint := a.endpoints()
	a.jobs(endpoint)
	a.billing()
	for tool, list := range map[string]string{"list-endpoint-builds": "builds", "list-endpoint-billing": "records"} { // there are none
		if got, ok := a.must(tool, map[string]obj{"list-endpoint-builds": {"id": endpoint}}[tool])[list].([]any); !ok || len(got) != 0 {
			t.Errorf("%s has %v, want an empty list", tool, got)
		}
	}
	a.must("delete-endpoint", obj{"id": endpoint})
	a.refuses("get-endpoint", obj{"id": endpoint}, "not found")
	for _, area := range elsewhere {
		for tool, args := range area.tools {
			a.refuses(tool, args, area.says)
		}
	}
	for _, tool := range a.tools {
		if !a.used[tool] {
			t.Errorf("tool %s was not called", tool)
		}
		delete(a.used, tool)
	}
	for tool := range a.used {
		t.Errorf("there is no tool %s", tool)
	}
}

func (a *mcpClient) catalog() {
	a.t.Helper()
	const gpu = "NVIDIA GeForce RTX 4090"
	if list := each(a.must("list-gpu-types", nil)["gpus"], "id"); !slices.Contains(list, gpu) {
		a.t.Errorf("GPU types %v, want %s among them", list, gpu)
	}
	a.gives("get-gpu-type", obj{"id": gpu}, obj{"id": gpu, "pool": "ADA_24", "memory": 24.0})
	if list := each(a.must("list-cpu-types", nil)["cpus"], "id"); !slices.Contains(list, "cpu3c") {
		a.t.Errorf("CPU types %v, want cpu3c among them", list)
	}
	a.gives("get-cpu-type", obj{"id": "cpu3c"}, obj{"id": "cpu3c", "vcpu": obj{"min": 2.0, "max": 32.0}})
	all := each(a.must("list-data-centers", nil)["dataCenters"], "id")
	two := each(a.must("list-data-centers", obj{"networkVolumeTypes": []any{"STANDARD", "HIGH_PERFORMANCE"}})["dataCenters"], "id")
	if !slices.Contains(two, "US-KS-2") || len(two) >= len(all) {
		a.t.Errorf("data centers with both kinds of volumes are %v of %v, want fewer, and US-KS-2", two, all)
	}
	a.gives("get-data-center", obj{"id": "US-KS-2"}, obj{"id": "US-KS-2", "name": "US Kansas 2"})
	if list := each(a.must("list-gpu-types", obj{"include": []any{"AVAILABILITY"}, "product": []any{"POD"}})["gpus"], "availability"); !slices.Contains(list, "HIGH") {
		a.t.Errorf("GPU types are available like %v, want some that are HIGH", list)
	}
}

func (a *mcpClient) registries() {
	a.t.Helper()
	made := a.gives("create-registry", obj{"body": obj{"name": "mine", "username": "u", "password": "p"}}, obj{"name": "mine"})
	a.gives("get-registry", obj{"id": id(made)}, obj{"id": id(made), "name": "mine"})
	a.lists("list-registries", nil, "registries", "name", "mine")
	a.must("delete-registry", obj{"id": id(made)})
	a.refuses("get-registry", obj{"id": id(made)}, "not found")
	a.refuses("create-registry", obj{"body": obj{"name": ""}}, "password")
}

func (a *mcpClient) volumes() {
	a.t.Helper()
	made := a.gives("create-network-volume", obj{"body": obj{"name": "data", "size": 10, "dataCenter": "US-KS-2"}},
		obj{"name": "data", "size": 10.0, "dataCenter": "US-KS-2", "type": "STANDARD"})
	volume := obj{"id": id(made)}
	a.gives("update-network-volume", obj{"id": id(made), "body": obj{"size": 20}}, obj{"size": 20.0})
	a.refuses("update-network-volume", obj{"id": id(made), "body": obj{"size": 10}}, "size")
	a.gives("get-network-volume", volume, obj{"name": "data", "size": 20.0})
	a.lists("list-network-volumes", nil, "networkVolumes", "id", id(made))
	a.must("delete-network-volume", volume)
	a.refuses("get-network-volume", volume, "not found")
}

func (a *mcpClient) templates() {
	a.t.Helper()
	if list := each(a.must("list-public-templates", nil)["templates"], "id"); !slices.Contains(list, "podyard-web") {
		a.t.Errorf("public templates %v, want podyard-web among them", list)
	}
	made := a.gives("create-template", obj{"body": obj{"name": "t", "image": "podyard/web"}}, obj{"name": "t", "image": "podyard/web", "startSsh": true})
	template := obj{"id": id(made)}
	a.gives("update-template", obj{"id": id(made), "body": obj{"name": "u"}}, obj{"name": "u"})
	a.gives("get-template", template, obj{"name": "u"})
	a.lists("list-templates", nil, "templates", "id", id(made))
	a.must("delete-template", template)
	a.refuses("get-template", template, "not found")
	keys := obj{"keys": []any{"ssh-ed25519 AAAA"}}
	a.gives("update-ssh-keys", obj{"body": keys}, keys)
	a.gives("get-ssh-keys", nil, keys)
}

// billing comes after pods, volumes and workers.
func (a *mcpClient) billing() {
	a.t.Helper()
	for _, tool := range []string{"list-billing", "list-pod-billing", "list-network-volume-billing", "list-serverless-billing"} {
		if list, ok := a.must(tool, obj{"bucketSize": "hour", "lastN": 2})["records"].([]any); !ok || len(list) == 0 {
			a.t.Errorf("%s has no records", tool)
		}
	}
}

func (a *mcpClient) pods() {
	a.t.Helper()
	made := a.gives("create-pod", obj{"body": obj{
		"name": "web", "image": "podyard/web", "cpu": obj{"id": "cpu3c", "vcpuCount": 2}, "ports": []any{"8000/http"}, "env": obj{"A": "1"},
	}}, obj{"name": "web", "status": "PROVISIONING", "env": obj{"A": "1"}})
	pod := obj{"id": id(made)}
	becomes := func(status string) {
		a.t.Helper()
		eventually(a.t, "the pod is "+status, func() bool { return a.must("get-pod", pod)["status"] == status })
	}
	becomes("RUNNING")
	a.lists("list-pods", nil, "pods", "id", id(made))
	a.lists("list-pods", obj{"includeClusterPods": true}, "pods", "id", id(made))
	a.gives("update-pod", obj{"id": id(made), "body": obj{"name": "renamed"}}, obj{"name": "renamed"})

	eventually(a.t, "the log says where the pod listens", func() bool {
		log := a.must("stream-pod-logs", obj{"podId": id(made), "source": "container", "tail": 10, "maxWaitMs": 500})
		lines := each(log["items"], "line")
		return len(lines) > 0 && strings.Contains(lines[0], "listens on")
	})

	for _, step := range []struct{ action, status string }{{"restart", "RUNNING"}, {"stop", "EXITED"}, {"start", "RUNNING"}} {
		a.must("pod-action", obj{"id": id(made), "body": obj{"action": step.action}})
		becomes(step.status)
	}
	a.refuses("pod-action", obj{"id": id(made), "body": obj{"action": "start"}}, "start")
	a.refuses("create-pod", obj{"body": obj{"name": "x", "image": "podyard/web", "cpu": obj{"id": "none", "vcpuCount": 2}}}, "none")
	a.must("delete-pod", pod)
	a.lists("list-pods", nil, "pods", "id")
	a.refuses("get-pod", pod, "not found")
}

func (a *mcpClient) clusters() {
	a.t.Helper()
	compute := obj{"gpuTypeId": "NVIDIA GeForce RTX 4090", "gpuCountPerPod": 1.0, "podCount": 2.0}
	made := a.gives("create-cluster", obj{"body": obj{"name": "train", "type": "TRAINING", "image": "podyard/hello", "compute": compute}},
		obj{"name": "train", "type": "TRAINING", "compute": compute})
	cluster := obj{"id": id(made)}
	a.lists("list-clusters", nil, "clusters", "id", id(made))
	a.gives("get-cluster", cluster, obj{"id": id(made), "name": "train"})
	if members := each(a.must("list-cluster-pods", cluster)["pods"], "id"); len(members) != 2 || !slices.Contains(members, id(made)) {
		a.t.Errorf("members %v, want two and %s among them", members, id(made))
	}
	a.lists("list-pods", nil, "pods", "id")
	a.gives("update-cluster", obj{"id": id(made), "body": obj{"name": "renamed"}}, obj{"name": "renamed"})
	a.refuses("delete-pod", cluster, "member of a cluster")
	a.must("list-cluster-billing", nil)
	a.must("delete-cluster", cluster)
	a.refuses("get-cluster", cluster, "cluster not found")
}

// endpoints makes one whose worker is a process, and returns its id.
func (a *mcpClient) endpoints() string {
	a.t.Helper()
	onGPUs := id(a.must("create-endpoint", obj{"body": obj{
		"name": "gpus", "type": "QUEUE", "image": "podyard/hello", "gpu": obj{"pools": []any{"ADA_24"}, "count": 1},
		"scaling": obj{"type": "REQUEST_COUNT", "requestCount": 4}, "workers": obj{"min": 0, "max": 1},
	}}))
	set := a.must("set-endpoint-gpus", obj{"endpointId": onGPUs, "pools": []any{"AMPERE_24", "ADA_24"}, "gpuCount": 2})
	if diff := cmp.Diff(obj{"id": onGPUs, "name": "gpus", "gpuIds": "AMPERE_24,ADA_24", "gpuCount": 2.0, "workersMin": 0.0, "workersMax": 1.0}, set["endpoint"]); diff != "" {
		a.t.Errorf("set-endpoint-gpus (-want +got):\n%s", diff)
	}
	a.must("delete-endpoint", obj{"id": onGPUs})

	made := id(a.gives("create-endpoint", obj{"body": obj{
		"name": "mine", "type": "QUEUE", "image": "local/greet", "cpu": []any{obj{"id": "cpu3c", "vcpuCount": 2}},
		"scaling": obj{"type": "QUEUE_DELAY", "queueDelay": 0.5}, "workers": obj{"min": 0, "max": 1, "idleTimeout": 600},
	}}, obj{"name": "mine", "type": "QUEUE", "timeout": 300000.0}))
	a.gives("get-endpoint", obj{"id": made}, obj{"id": made, "image": "local/greet", "env": obj{}})
	a.gives("update-endpoint", obj{"id": made, "body": obj{"env": obj{"B": "2"}}}, obj{"env": obj{"B": "2"}})
	a.lists("list-endpoints", nil, "items", "name", "echo", "hello", "mine")
	releases := a.gives("list-endpoint-releases", obj{"id": made}, obj{"endpointVersion": 2.0})
	if list, _ := releases["releases"].([]any); len(list) != 2 {
		a.t.Errorf("releases are %v, want two", list)
	}
	a.refuses("create-endpoint", obj{"body": obj{"name": "bad"}}, "scaling")

	hello := a.gives("runsync-endpoint", obj{"endpointId": made, "input": obj{"name": "agent"}, "wait": 60000},
		obj{"status": "COMPLETED", "output": obj{"greeting": "hello, agent"}})
	workers := a.must("list-endpoint-workers", obj{"id": made})
	if list := each(workers["workers"], "id"); len(list) != 1 || list[0] != hello["workerId"] {
		a.t.Errorf("workers are %v, want the one that did the job, %v", list, hello["workerId"])
	}
	eventually(a.t, "the worker's log is there", func() bool {
		log := a.must("stream-worker-logs", obj{"endpointId": made, "workerId": hello["workerId"], "maxWaitMs": 500})
		return slices.Contains(each(log["items"], "line"), "ready to greet")
	})
	return made
}

func (a *mcpClient) jobs(idle string) {
	a.t.Helper()
	echo := func(more obj) obj {
		more["endpointId"] = "echo"
		return more
	}
	a.gives("runsync-endpoint", echo(obj{"input": obj{"a": 1}}), obj{"status": "COMPLETED", "output": obj{"a": 1.0}})
	a.gives("runsync-endpoint", echo(obj{"input": obj{"fail": "why"}}), obj{"status": "FAILED", "error": "why"})

	quick := id(a.gives("run-endpoint", echo(obj{"input": obj{"b": 2}}), obj{"status": "IN_QUEUE"}))
	a.gives("get-job-status", echo(obj{"jobId": quick, "wait": 60000}), obj{"status": "COMPLETED", "output": obj{"b": 2.0}})

	many := id(a.must("run-endpoint", echo(obj{"input": obj{"chunks": 3}})))
	streamed := a.gives("stream-job", echo(obj{"jobId": many}), obj{"status": "COMPLETED"})
	want := []any{}
	for i := range 3 {
		want = append(want, obj{"output": obj{"chunk": float64(i)}})
	}
	if diff := cmp.Diff(want, streamed["stream"]); diff != "" {
		a.t.Errorf("stream-job (-want +got):\n%s", diff)
	}

	slow := id(a.must("run-endpoint", echo(obj{"input": obj{"sleep_ms": 600000}, "policy": obj{"executionTimeout": 700000}})))
	a.gives("cancel-job", echo(obj{"jobId": slow}), obj{"id": slow, "status": "CANCELLED"})
	a.refuses("retry-job", echo(obj{"jobId": slow}), "retr")
	failed := id(a.must("run-endpoint", echo(obj{"input": obj{"fail": "again"}})))
	a.gives("get-job-status", echo(obj{"jobId": failed, "wait": 60000}), obj{"status": "FAILED"})
	a.gives("retry-job", echo(obj{"jobId": failed}), obj{"id": failed, "status": "IN_QUEUE"})
	a.refuses("get-job-status", echo(obj{"jobId": "none"}), "not found")

	health := a.must("endpoint-health", obj{"endpointId": "echo"})
	if workers, _ := health["workers"].(obj); workers["ready"] != 1.0 {
		a.t.Errorf("health is %v, want one worker ready", health)
	}
	a.gives("purge-endpoint-queue", obj{"endpointId": idle}, obj{"removed": 0.0, "status": "completed"})
}

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/podyard/podyard/examples/server/demo"
	"github.com/podyard/podyard/httpapi"
)

// A fuzzRequest is a request that a generator made.
type fuzzRequest struct {
	op     string // the operation, "console", or "none" for a path that is no operation's
	key    string
	method string
	target string
	body   string
	media  string
	values map[string]string // of the placeholders in the path
	area   httpapi.Area
}

func (r *fuzzRequest) String() string {
	return fmt.Sprintf("%s %s (%s) as %q, body %.300q", r.method, r.target, r.op, r.key, r.body)
}

// known are the ids that answers had, so that requests name what is there. It is shared by generators.
type known struct {
	mu  sync.Mutex
	ids map[httpapi.Area][]map[string]string // values of placeholders that belong together, newest last
}

// maxKnown is how many ids of an area are remembered.
const maxKnown = 64

func (k *known) add(a httpapi.Area, values map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ids[a] = append(k.ids[a], values); len(k.ids[a]) > maxKnown {
		k.ids[a] = k.ids[a][1:]
	}
}

func (k *known) some(a httpapi.Area, random *rand.Rand) map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if list := k.ids[a]; len(list) > 0 {
		return list[random.IntN(len(list))]
	}
	return nil
}

// learn remembers the id of what a request created.
func (k *known) learn(r *fuzzRequest, answer []byte) {
	var made struct {
		ID  string `json:"id"`
		Key struct{ ID string }
	}
	if json.Unmarshal(answer, &made) != nil || made.ID == "" && made.Key.ID == "" {
		return
	}
	values := map[string]string{}
	maps.Copy(values, r.values)
	id := made.ID
	if id == "" {
		id = made.Key.ID
	}
	switch r.area {
	case httpapi.AreaJobs, httpapi.AreaWorkers:
		values["job"] = id
		k.add(httpapi.AreaJobs, values)
		k.add(httpapi.AreaWorkers, values)
		return
	case httpapi.AreaSchedules:
		values["schedule"] = id
	case httpapi.AreaBatches:
		values["batch"] = id
	case httpapi.AreaEndpoints:
		values["endpoint"] = id
		for _, a := range []httpapi.Area{httpapi.AreaJobs, httpapi.AreaSchedules, httpapi.AreaBatches, httpapi.AreaWorkers, httpapi.AreaBalance} {
			k.add(a, map[string]string{"endpoint": id})
		}
		values["id"] = id
	default:
		values["id"] = id
	}
	k.add(r.area, values)
}

// A fuzzer makes requests from a seed, the table of operations and the served description.
type fuzzer struct {
	random *rand.Rand
	table  httpapi.OperationTable
	doc    map[string]any
	known  *known
	keys   []string
	cookie map[string]string // of sessions of the console, by key
}

func (f *fuzzer) chance(percent int) bool { return f.random.IntN(100) < percent }

func (f *fuzzer) one(list ...string) string { return list[f.random.IntN(len(list))] }

// odd are texts that no operation wants.
func (f *fuzzer) odd() string {
	return f.one("x", "", ".", "..", "a%2Fb", "%00", "%ff", "*", "-1", "0", "99999999999999999999", strings.Repeat("x", 300), "%E2%80%AE", "null", "true", "echo", "local-echo")
}

// next is a request: mostly to an operation as it should be.
func (f *fuzzer) next() *fuzzRequest {
	r := &fuzzRequest{key: f.keys[f.random.IntN(len(f.keys))]}
	switch {
	case f.chance(8):
		f.console(r)
	case f.chance(5):
		r.op, r.method = "none", f.one("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
		r.target = "/" + f.one("v2", "v1", "lb", "console", "metrics", "readyz", "peer", "debug") + "/" + f.odd() + "/" + f.odd()
	case f.chance(25):
		f.operation(r, f.table.Named(f.one(crossing...)))
	default:
		f.operation(r, &f.table[f.random.IntN(len(f.table))])
	}
	return r
}

// crossing are operations of which one changes what another one waits for.
var crossing = []string{"run", "runSync", "openai", "openai", "openai", "stream", "cancel", "purgeQueue", "actions", "createEndpoint", "createBatch", "createSchedule", "jobTake", "jobDone", "proxy"}

// console is a request to a page or to what a page reads.
func (f *fuzzer) console(r *fuzzRequest) {
	endpoint, job := f.value(httpapi.AreaJobs, "endpoint"), f.value(httpapi.AreaJobs, "job")
	r.op, r.method = "console", "GET"
	r.target = "/console/" + f.one("", "session", "data/overview", "data/webhooks", "data/live", "jobs", "a/x/y",
		"data/waiting/"+endpoint, "data/workers/"+endpoint, "data/history/"+endpoint, "data/jobs/"+endpoint, "data/job/"+endpoint+"/"+job,
		"data/job/"+endpoint+"/"+job+"/"+f.one("input", "output", "x"), "data/tail/"+endpoint+"/"+job, "data/live?endpoint="+endpoint)
	if f.chance(40) {
		inner := &fuzzRequest{key: r.key}
		f.operation(inner, &f.table[f.random.IntN(len(f.table))])
		if strings.HasPrefix(inner.target, "/v") {
			r.op, r.method, r.target, r.body, r.media = inner.op, inner.method, "/console/api"+inner.target, inner.body, inner.media
		}
	}
}

// value is one for a placeholder: mostly of something that is there.
func (f *fuzzer) value(a httpapi.Area, name string) string {
	v := f.known.some(a, f.random)[name]
	if v == "" && name == "endpoint" {
		v = f.one("echo", "hello", "web", "echo")
	}
	if v == "" || f.chance(8) {
		return f.odd()
	}
	return v
}

func (f *fuzzer) operation(r *fuzzRequest, o *httpapi.Operation) {
	r.op, r.area, r.values = o.Name, o.Area, map[string]string{}
	r.method = o.Methods[f.random.IntN(len(o.Methods))]
	if f.chance(3) {
		r.method = f.one("HEAD", "OPTIONS", "PUT", "DELETE")
	}
	like := f.known.some(o.Area, f.random) // values that belong together
	segments := strings.Split(o.Path, "/")
	for i, s := range segments {
		name, ok := strings.CutPrefix(strings.TrimSuffix(s, "}"), "{")
		if !ok {
			continue
		}
		name = strings.TrimSuffix(name, "...")
		switch v, ok := like[name]; {
		case ok && !f.chance(8):
			segments[i] = v
		case name == "worker" || name == "workerId":
			segments[i] = f.one("w1", "w2", "local-echo", f.odd())
		case name == "route":
			segments[i] = f.one("v1/chat/completions", "v1/models", "v1/completions", f.odd())
		case name == "path":
			segments[i] = f.one("", "x", "000", "099", "trailers", "a/b", f.odd())
		case name == "name":
			segments[i] = f.one("carol", "nobody", f.odd())
		default:
			segments[i] = f.value(o.Area, name)
		}
		r.values[name] = segments[i]
	}
	described, _ := at(f.doc, "paths", strings.ReplaceAll(o.Path, "...}", "}"), strings.ToLower(r.method)).(map[string]any)
	r.target = strings.Join(segments, "/") + f.query(described)
	if schema := at(described, "requestBody", "content", "application/json", "schema"); schema != nil {
		r.media = "application/json"
		r.body = f.text(f.make(schema, 0))
	} else if o.Area == httpapi.AreaBalance || strings.Contains(o.Path, "openai") {
		r.media, r.body = "application/json", f.one(`{"model":"x","messages":[]}`, `{"stream":true}`, "x", "")
	}
	if r.method == "GET" || f.chance(2) {
		r.body = ""
	}
	if f.chance(2) {
		r.media = f.one("", "text/plain", "application/json; charset=x", "application/x-www-form-urlencoded")
	}
}

// query is a query with some of the parameters of an operation.
func (f *fuzzer) query(op map[string]any) string {
	list, _ := op["parameters"].([]any)
	var parts []string
	for _, p := range list {
		p, _ := f.resolve(p).(map[string]any)
		name, _ := p["name"].(string)
		if p["in"] != "query" || !f.chance(30) {
			continue
		}
		v := fmt.Sprint(f.make(p["schema"], 3))
		if f.chance(20) {
			v = f.odd()
		}
		parts = append(parts, name+"="+strings.NewReplacer(" ", "%20", "&", "%26", "#", "%23", "\n", "%0A").Replace(v))
	}
	if len(parts) == 0 {
		return ""
	}
	return "?" + strings.Join(parts, "&")
}

// text is a value as JSON, and now and then as something that nearly is.
func (f *fuzzer) text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "{}"
	}
	switch f.random.IntN(40) {
	case 0:
		return string(b[:f.random.IntN(len(b)+1)])
	case 1:
		return string(b) + "x"
	case 2:
		return strings.Repeat("[", 200) + string(b)
	case 3:
		return strings.Replace(string(b), `"`, "\"\xff", 1)
	case 4:
		return f.one("", "null", "[]", "1", `""`, "{}", `{"a":1,"a":2}`)
	}
	return string(b)
}

// at goes down into a document.
func at(v any, names ...string) any {
	for _, name := range names {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

func (f *fuzzer) resolve(v any) any {
	for range 8 {
		ref, ok := at(v, "$ref").(string)
		if !ok {
			return v
		}
		v = at(any(f.doc), strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return nil
}

// good are values of members that mean something to the server.
var good = map[string][]any{
	"image": {demo.WebImage, demo.HelloImage, "ubuntu:24.04", ""}, "action": {"stop", "start", "restart", "terminate", "cancel", "retry", "x"},
	"cron": {"* * * * *", "@daily", "61 * * * *"}, "webhook": {"http://127.0.0.1:1/x", "http://a@b/", "x"}, "prefix": {"", "sync-", "x"},
	"type": {"QUEUE", "LOAD_BALANCER", "REQUEST_COUNT", "QUEUE_DELAY", "x"}, "all": {true, false}, "server": {false},
	"input":     {map[string]any{"a": 1}, map[string]any{"sleep_ms": 50}, map[string]any{"fail": "why"}, map[string]any{"chunks": 3}, map[string]any{"size": 300000}, nil},
	"vcpuCount": {2, 0, 1000}, "min": {0, 1}, "max": {0, 1, 2}, "user": {"carol", "alice", ""}, "scopes": {[]any{"pods:read"}, []any{"*"}, []any{"operator"}, []any{"x"}},
}

// make is a value of a schema, or nearly.
func (f *fuzzer) make(schema any, depth int) any {
	s, _ := f.resolve(schema).(map[string]any)
	if depth > 6 || s == nil || f.chance(2) {
		return f.random.IntN(3)
	}
	for _, several := range []string{"oneOf", "anyOf", "allOf"} {
		if list, ok := s[several].([]any); ok && len(list) > 0 {
			return f.make(list[f.random.IntN(len(list))], depth+1)
		}
	}
	if list, ok := s["enum"].([]any); ok && len(list) > 0 && !f.chance(5) {
		return list[f.random.IntN(len(list))]
	}
	if v, ok := s["const"]; ok {
		return v
	}
	kind, _ := s["type"].(string)
	if list, ok := s["type"].([]any); ok && len(list) > 0 {
		kind, _ = list[f.random.IntN(len(list))].(string)
	}
	if f.chance(2) {
		kind = f.one("string", "integer", "boolean", "array", "null")
	}
	switch kind {
	case "object":
		return f.object(s, depth)
	case "array":
		list := []any{}
		for range f.random.IntN(4) {
			list = append(list, f.make(s["items"], depth+1))
		}
		return list
	case "integer", "number":
		return []any{0, 1, 2, 10, 100, -1, 1e18, 0.5, f.random.IntN(100000)}[f.random.IntN(9)]
	case "boolean":
		return f.chance(50)
	case "null":
		return nil
	}
	return f.one("x", "name-"+f.odd(), "", "2026-01-01T00:00:00Z", "5m", f.value(httpapi.AreaPods, "id"), f.value(httpapi.AreaJobs, "job"), "a\u202eb", f.odd())
}

func (f *fuzzer) object(s map[string]any, depth int) any {
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	m := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if !f.chance(30) && (!slices.Contains(required, any(name)) || f.chance(3)) {
			continue
		}
		if list := good[name]; list != nil && f.chance(80) {
			m[name] = list[f.random.IntN(len(list))]
			continue
		}
		m[name] = f.make(properties[name], depth+1)
	}
	if len(properties) == 0 || f.chance(3) {
		m[f.one("a", "", "zebra", "input")] = f.random.IntN(9)
	}
	return m
}

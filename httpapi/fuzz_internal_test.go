package httpapi

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
)

// sameRequest compares decoded requests.
var sameRequest = cmp.Options{
	cmpopts.IgnoreFields(pods.CreateRequest{}, "Violations"),
	cmpopts.IgnoreFields(pods.UpdateRequest{}, "Violations"),
	cmpopts.IgnoreFields(serverless.Request{}, "Violations"),
}

// refused checks the error of a decoder: 400 or 422 with the reason.
func refused(t *testing.T, body []byte, err error) {
	t.Helper()
	if doc := problem.Of(err); doc.Status != 400 && doc.Status != 422 || doc.Detail == "" {
		t.Errorf("%q is refused with %v", body, err)
	}
	if json.Valid(body) && problem.KindOf(err) == problem.BadRequest && !strings.Contains(err.Error(), "duplicate") &&
		!strings.Contains(err.Error(), "UTF-8") &&
		!strings.Contains(err.Error(), "surrogate") && !strings.Contains(err.Error(), "depth") {
		t.Errorf("%q is JSON, and is refused with %v", body, err)
	}
}

// put adds a member unless its value is zero.
func put[T comparable](to map[string]any, name string, v T) {
	if v != *new(T) {
		to[name] = v
	}
}

func encodeMounts(to map[string]any, m pods.Mounts) {
	ms := map[string]any{}
	if p := m.Persistent; p != nil {
		ms["persistent"] = map[string]any{"size": p.Size, "path": p.Path}
	}
	if m.Network != nil {
		list := []any{}
		for _, n := range m.Network {
			list = append(list, map[string]any{"volumeId": n.VolumeID, "path": n.Path})
		}
		ms["network"] = list
	}
	if len(ms) > 0 {
		to["mounts"] = ms
	}
}

func encodeCreate(t *testing.T, r *pods.CreateRequest) []byte {
	t.Helper()
	m := map[string]any{"name": r.Name, "image": r.Image} // empty ones are there, too
	put(m, "args", r.Args)
	put(m, "disk", r.Disk)
	put(m, "cloud", r.Cloud)
	put(m, "templateId", r.TemplateID)
	put(m, "startSsh", r.StartSSH)
	put(m, "startJupyter", r.StartJupyter)
	encodeRegistry(m, r.Registry)
	put(m, "globalNetworking", r.GlobalNetworking)
	if g := r.GPU; g != nil {
		gpu := map[string]any{"id": g.ID}
		put(gpu, "count", g.Count)
		put(gpu, "minCudaVersion", g.MinCUDAVersion)
		if g.AllowedCUDAVersions != nil {
			gpu["allowedCudaVersions"] = g.AllowedCUDAVersions
		}
		m["gpu"] = gpu
	}
	if c := r.CPU; c != nil {
		m["cpu"] = map[string]any{"id": c.ID, "vcpuCount": c.VCPU}
	}
	for name, list := range map[string][]string{"ports": r.Ports, "dataCenterIds": r.DataCenterIDs} {
		if list != nil {
			m[name] = list
		}
	}
	if r.Env != nil {
		m["env"] = r.Env
	}
	encodeMounts(m, r.Mounts)
	return marshal(t, m)
}

// encodeRegistry writes an absent registry as null.
func encodeRegistry(to map[string]any, id *string) {
	switch {
	case id == nil:
	case *id == "":
		to["registry"] = nil
	default:
		to["registry"] = *id
	}
}

func encodeUpdate(t *testing.T, r *pods.UpdateRequest) []byte {
	t.Helper()
	m := map[string]any{}
	put(m, "name", r.Name)
	put(m, "image", r.Image)
	put(m, "args", r.Args)
	put(m, "disk", r.Disk)
	put(m, "locked", r.Locked)
	put(m, "globalNetworking", r.GlobalNetworking)
	put(m, "templateId", r.TemplateID)
	encodeRegistry(m, r.Registry)
	if r.Ports != nil {
		m["ports"] = r.Ports
	}
	if r.Env != nil {
		m["env"] = r.Env
	}
	encodeMounts(m, r.Mounts)
	return marshal(t, m)
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// addBodies adds seeds for every decoder of bodies.
func addBodies(f *testing.F, more ...string) {
	for _, s := range append(more,
		``, ` `, `{}`, `[]`, `null`, `"x"`, `1`, `{`, `{"a":1}x`, `{"a":1,"a":2}`, "{\"a\":\"\xff\"}", `{"a":"\ud800"}`,
		`{"":{"":[]}}`, `{"a/b~c":1}`, "\xef\xbb\xbf{}", `{"a":1e999,"b":-0,"c":0.10}`, strings.Repeat("[", 10_001),
	) {
		f.Add([]byte(s))
	}
}

// roundTrip fuzzes a decoder. A body that it accepts must stay the same after encoding and
// decoding. The error for any other body must name the place.
func roundTrip[T any](f *testing.F, decode func([]byte) (T, error), encode func(*testing.T, *T) []byte) {
	f.Helper()
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := decode(body)
		if err != nil {
			refused(t, body, err)
			return
		}
		again, err := decode(encode(t, &r))
		if err != nil {
			t.Fatalf("%s decodes with %v", encode(t, &r), err)
		}
		if diff := cmp.Diff(r, again, sameRequest); diff != "" {
			t.Errorf("%q (-decoded +encoded and decoded again):\n%s", body, diff)
		}
	})
}

func FuzzCreatePod(f *testing.F) {
	addBodies(f,
		`{"name":"p","image":"i","gpu":{"id":"NVIDIA H200","count":2},"args":"a","disk":20,"ports":["22/tcp"],"env":{"A":"1"},"registry":"r","mounts":{"persistent":{"size":20,"path":"/p"}},"cloud":"SECURE","dataCenterIds":["US-KS-2"],"globalNetworking":true}`,
		`{"name":"p","templateId":"t","startSsh":true,"startJupyter":false,"gpu":{"id":"NVIDIA H200","allowedCudaVersions":[],"minCudaVersion":"12.8"}}`,
		`{"name":"p","image":"i","cpu":{"id":"cpu3c","vcpuCount":2},"mounts":{"network":[{"volumeId":"v","path":"/p"}]},"registry":null}`,
		`{"name":"","image":"","gpu":{"id":"","count":2},"mounts":{"persistent":{"size":0,"path":""}}}`,
		`{"name":1,"image":2,"gpu":3,"cpu":4,"ports":[1,"x"],"env":{"A":1},"mounts":{"network":[1],"x":{}},"zebra":1}`,
		`{"disk":1e300,"gpu":{"count":-1e300}}`,
	)
	roundTrip(f, func(body []byte) (r pods.CreateRequest, err error) {
		if r, err = decodeCreatePod(body); err == nil {
			err = r.Violations.Err(nil)
		}
		return r, err
	}, encodeCreate)
}

func FuzzUpdatePod(f *testing.F) {
	addBodies(f,
		`{"name":"p","image":"i","args":"","disk":20,"ports":[],"env":{},"registry":null,"mounts":{"persistent":{"size":20,"path":"/p"}},"locked":false,"globalNetworking":true}`,
		`{"registry":"r","templateId":"t","mounts":{"network":[]}}`, `{"gpu":{},"locked":"x"}`,
	)
	roundTrip(f, func(body []byte) (r pods.UpdateRequest, err error) {
		if r, err = decodeUpdatePod(body); err == nil {
			err = r.Violations.Err(nil)
		}
		return r, err
	}, encodeUpdate)
}

func FuzzAction(f *testing.F) {
	addBodies(f, `{"action":"start"}`, `{"action":"terminate","x":1}`, `{"action":1}`)
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := decodeAction(body)
		if err != nil {
			refused(t, body, err)
			return
		}
		again, err := decodeAction(marshal(t, map[string]any{"action": a}))
		if err != nil || again != a {
			t.Errorf("%q is %q and then %q, %v", body, a, again, err)
		}
	})
}

// callOf returns a call for decoders that read the request.
func callOf(method, target string, body []byte) *call {
	r := &http.Request{Method: method, Header: http.Header{}, Body: http.NoBody, URL: &url.URL{Path: "/"}}
	if _, q, ok := strings.Cut(target, "?"); ok {
		r.URL.RawQuery = q
	}
	if body != nil {
		in := httptest.NewRequest(method, "/", bytes.NewReader(body))
		r.Body, r.ContentLength = in.Body, in.ContentLength
	}
	return &call{router: newAPI(Services{}, nil).router(APIControl), w: httptest.NewRecorder(), r: r}
}

func FuzzRunRequest(f *testing.F) {
	addBodies(f,
		`{"input":{"a":1.0,"a":"\u00e9"},"webhook":"http://x/y","policy":{"executionTimeout":5000,"ttl":10000,"lowPriority":true},"s3Config":{"accessId":"a"},"more":[]}`,
		`{"input":{},"webhook":null,"policy":null,"s3Config":null}`, `{"input": { } }`,
		`{"input":[],"policy":{"ttl":"x","ttl":1},"s3Config":{"accessId":1}}`,
	)
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := callOf("POST", "/", body).runRequest(maxRunBody)
		if err == nil {
			err = r.Violations.Err(nil)
		}
		if err != nil {
			refused(t, body, err)
			return
		}
		if r.Input != nil && (!bytes.Contains(body, r.Input) || !json.Valid(r.Input) || r.Input[0] != '{') {
			t.Errorf("the input %q is no object of the body %q", r.Input, body)
		}
		m := map[string]any{}
		if r.Input != nil {
			m["input"] = json.RawMessage(r.Input)
		}
		put(m, "webhook", r.Webhook)
		policy := map[string]any{"lowPriority": r.Policy.LowPriority}
		for name, d := range map[string]*time.Duration{"executionTimeout": r.Policy.ExecutionTimeout, "ttl": r.Policy.TTL} {
			if d != nil {
				policy[name] = d.Milliseconds()
			}
		}
		m["policy"] = policy
		if r.Extra != nil {
			var extra map[string]json.RawMessage
			if err := json.Unmarshal(r.Extra, &extra); err != nil || len(extra) != 1 {
				t.Fatalf("the worker's part is %q", r.Extra)
			}
			maps.Copy(m, map[string]any{"s3Config": extra["s3Config"]})
		}
		encoded := encodeRaw(t, m)
		again, err := callOf("POST", "/", encoded).runRequest(maxRunBody)
		if err != nil {
			t.Fatalf("%s: %v", encoded, err)
		}
		if diff := cmp.Diff(r, again, sameRequest); diff != "" {
			t.Errorf("%q (-decoded +encoded and decoded again):\n%s", body, diff)
		}
	})
}

// encodeRaw is json.Marshal, but it leaves raw messages unchanged.
func encodeRaw(t *testing.T, m map[string]any) []byte {
	t.Helper()
	b := []byte("{")
	for i, name := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, marshal(t, name)...), ':')
		if raw, ok := m[name].(json.RawMessage); ok {
			b = append(b, raw...)
			continue
		}
		b = append(b, marshal(t, m[name])...)
	}
	return append(b, '}')
}

func FuzzFaultsAreInTheOrderOfTheFields(f *testing.F) {
	addBodies(f, `{"password":1,"username":2,"name":3,"url":4}`, `{"name":"n","username":"u","password":""}`)
	f.Fuzz(func(t *testing.T, body []byte) {
		var faults problem.Violations
		o, err := parse(body, strictThroughout, &faults)
		if err != nil {
			refused(t, body, err)
			return
		}
		fields := registries.Fields()
		for _, name := range fields {
			o.require(name)
			o.str(name)
		}
		o.unknown()
		last := -1
		for _, e := range problem.Of(faults.Err(fields)).Errors {
			place, _, _ := strings.Cut(e, ":")
			at := slices.Index(fields, strings.TrimPrefix(place, "/"))
			if at < 0 {
				at = len(fields)
			}
			if at < last {
				t.Errorf("%q: %s comes after a later field", body, e)
			}
			last = at
		}
		for _, m := range o.members {
			if !m.taken && faults.Err(nil) == nil {
				t.Errorf("%q: nobody asked for %q, and it is no fault", body, m.name)
			}
		}
	})
}

func FuzzCursor(f *testing.F) {
	for _, s := range []string{
		"", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456789Z/000000000007", "2026-01-01T00:00:00+02:00/900000000001",
		"/", "2026-01-01T00:00:00Z/", "2026-01-01T00:00:00Z/-1", "2026-01-01T00:00:00Z/99999999999999999999", "9999-12-31T23:59:59Z/1/2",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		after, err := parseCursor(s)
		if err != nil {
			return
		}
		for src, l := range after {
			if y := l.At.UTC().Year(); y < 1 || y > 9999 {
				continue // RFC 3339 cannot write such a year
			}
			event := string(appendEvent(nil, logLine{l, src}))
			id, _, _ := strings.Cut(strings.TrimPrefix(event, "id: "), "\n")
			again, err := parseCursor(id)
			if err != nil {
				t.Fatalf("%q: the id %q of an event is no cursor: %v", s, id, err)
			}
			if got := again[src]; !got.At.Equal(l.At) || l.Seq < systemSeq && got.Seq != l.Seq {
				t.Errorf("%q: an event at %v/%d has an id that means %v/%d", s, l.At, l.Seq, got.At, got.Seq)
			}
		}
	})
}

func FuzzAuthorization(f *testing.F) {
	for _, s := range []string{"", "Bearer", "Bearer k", "bearer  k ", "k", "Basic k", "Bearer a b", "Bearer\tk", " k", "Bearer Bearer", "bearer\u00a0k"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, header string, bare bool) {
		key, err := keyOf(header, bare)
		if err != nil {
			if problem.KindOf(err) != problem.Unauthorized || key != "" {
				t.Errorf("keyOf(%q) = %q, %v", header, key, err)
			}
			return
		}
		if key == "" || strings.Contains(key, " ") || !strings.Contains(header, key) {
			t.Errorf("keyOf(%q) = %q", header, key)
		}
		if again, err := keyOf("Bearer "+key, bare); err != nil || again != key {
			t.Errorf("keyOf(Bearer %q) = %q, %v", key, again, err)
		}
		if _, err := keyOf(header, true); err != nil {
			t.Errorf("keyOf(%q) is stricter where bare keys are allowed: %v", header, err)
		}
	})
}

func FuzzQueryMillis(f *testing.F) {
	for _, s := range []string{"", "wait=1000", "wait=300000", "wait=999", "wait=-1", "wait=1e3", "wait=9223372036854775807", "wait=%31000", "wait=1000&wait=2", "%zz&wait=5000", "wait=+1000", ";wait=1000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		c := callOf("GET", "/?"+query, nil)
		d, err := c.queryMillis("wait", serverless.DefaultWait, serverless.CheckWait)
		if err != nil {
			if problem.KindOf(err) != problem.Invalid {
				t.Errorf("%q: %v", query, err)
			}
			return
		}
		if d < serverless.MinWait || d > serverless.MaxWait || d%time.Millisecond != 0 {
			t.Errorf("%q: wait = %v", query, d)
		}
		for _, err := range []error{func() error { _, err := c.queryInt("wait", 1, 0, 10); return err }(), func() error { _, err := c.queryFlag("wait"); return err }()} {
			if err != nil && problem.KindOf(err) != problem.Invalid {
				t.Errorf("%q: %v", query, err)
			}
		}
	})
}

// Without a key, every path gets 401 or an earlier error, and no redirect.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"/", "", "/v2/pods", "/v2//pods", "/v2/pods/../x", "*", "/v1/pods/x/reset", "/v2/e/run", "/v2/e/stream/%2f", "/v2/pods/ /logs", "/v2/catalog/gpus/a b"} {
		f.Add("GET", s)
		f.Add("POST", s)
	}
	services := Services{Pods: &pods.Service{}, Registries: &registries.Service{}, Jobs: &serverless.Service{}}
	h := New(services, nil)
	f.Fuzz(func(t *testing.T, method, path string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, &http.Request{Method: method, Header: http.Header{}, Body: http.NoBody, URL: &url.URL{Path: path}})
		if w.Code != 401 && w.Code != 404 && w.Code != 405 {
			t.Errorf("%s %q = %d %s", method, path, w.Code, w.Body)
		}
	})
}

func decodeCreatePod(body []byte) (r pods.CreateRequest, err error) {
	err = decodeBody(body, &r, &r.Violations, (*object).createPod)
	return r, err
}

func decodeUpdatePod(body []byte) (r pods.UpdateRequest, err error) {
	err = decodeBody(body, &r, &r.Violations, (*object).updatePod)
	return r, err
}

func decodeUpdateEndpoint(body []byte) (r endpoints.UpdateRequest, err error) {
	err = decodeBody(body, &r, &r.Violations, (*object).updateEndpoint)
	return r, err
}

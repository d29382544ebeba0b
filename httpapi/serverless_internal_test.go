package httpapi

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podyard/podyard/serverless/endpoints"
)

// FuzzEndpoint decodes bodies of create and update. Each body is refused with a reason or
// accepted, and both decoders read the same settings.
func FuzzEndpoint(f *testing.F) {
	addBodies(f,
		`{"name":"n","type":"QUEUE","image":"i","gpu":{"pools":["ADA_24"],"excludedTypes":["L40"],"count":2,"allowedCudaVersions":["12.8"],"minCudaVersion":""},"args":"a","disk":20,"ports":["22/tcp"],"env":{"A":"1"},"registry":null}`,
		`{"cpu":[{"id":"cpu5c","vcpuCount":2},1,{},{"id":1}],"workers":{"min":1,"max":2,"idleTimeout":3},"scaling":{"type":"QUEUE_DELAY","queueDelay":0.5},"dataCenterIds":[],"networkVolumes":["v"],"timeout":60000,"flashboot":"OFF"}`,
		`{"scaling":{"type":"REQUEST_COUNT","requestCount":1,"queueDelay":1},"timeout":1e300,"workers":{"idleTimeout":-1e300},"registry":""}`,
		`{"scaling":{"type":"QUEUE_DELAY","queueDelay":1e999}}`, `{"scaling":{"queueDelay":-1e999,"requestCount":1}}`,
	)
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := DecodeEndpoint(body)
		u, uerr := decodeUpdateEndpoint(body)
		if err != nil || uerr != nil {
			refused(t, body, err)
			if (err == nil) != (uerr == nil) {
				t.Errorf("%q is refused with %v by create and with %v by update", body, err, uerr)
			}
			return
		}
		for _, faults := range []error{c.Violations.Err(nil), u.Violations.Err(nil)} {
			if faults != nil {
				refused(t, body, faults)
			}
		}
		if diff := cmp.Diff(c.Settings, u.Settings, cmpopts.IgnoreFields(endpoints.Settings{}, "Violations")); diff != "" {
			t.Errorf("%q (-create +update):\n%s", body, diff)
		}
		if !json.Valid(body) {
			t.Errorf("%q is understood and is no JSON", body)
		}
	})
}

func TestSpansThatAreTooLongAreTheLongest(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "1": time.Second, "-3": -3 * time.Second, "1e300": math.MaxInt64 / time.Second * time.Second,
		"-1e300": -(math.MaxInt64 / time.Second * time.Second), "9223372036": 9223372036 * time.Second, "9223372037": 9223372036 * time.Second,
	} {
		r, err := DecodeEndpoint([]byte(`{"workers":{"idleTimeout":` + text + `}}`))
		if err != nil || r.Workers.Idle == nil || *r.Workers.Idle != want {
			t.Errorf("%s seconds are %v, %v, want %v", text, r.Workers.Idle, err, want)
		}
	}
	for text, want := range map[string]time.Duration{
		"0.5": 500 * time.Millisecond, "1e-9": 1, "1e-10": 0, "4": 4 * time.Second, "1.1": 1100 * time.Millisecond,
		"1e999": 9e9 * time.Second, "-1e999": -9e9 * time.Second,
	} {
		r, err := DecodeEndpoint([]byte(`{"scaling":{"type":"QUEUE_DELAY","queueDelay":` + text + `}}`))
		if err != nil || r.Scaling == nil || r.Scaling.Delay != want {
			t.Errorf("%s seconds are %+v, %v, want %v", text, r.Scaling, err, want)
		}
	}
}

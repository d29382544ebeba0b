package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestAWorkerGetsTheTraceContextAsMembersAndAsHeadersOfASingleTake(t *testing.T) {
	bubble(t, func(w *testAPI) {
		h := w.hand("w1")
		id := w.want(http.StatusOK, "POST", "/v2/idle/run", `{"input":{},"s3Config":{"bucketName":"b"}}`,
			"Traceparent: "+traceparent, `Tracestate: a=1, b="\`, "Baggage: secret=1").field("id")
		a := w.call("GET", h.path("job-take"), "", h.key())
		want := `{"id":"` + id + `","input":{},"traceparent":"` + traceparent + `","tracestate":"a=1,b=\"\\","s3Config":{"bucketName":"b"}}`
		if a.body != want {
			t.Errorf("the worker gets %s\nwant %s", a.body, want)
		}
		if p, s := a.header.Get("Traceparent"), a.header.Get("Tracestate"); p != traceparent || s != `a=1,b="\` {
			t.Errorf("headers of job-take: %q, %q, want those of the request", p, s)
		}
		id = w.want(http.StatusOK, "POST", "/v2/idle/run", `{"input":{}}`, "Traceparent: "+traceparent).field("id")
		a = w.call("GET", strings.Replace(h.path("job-take"), "job-take", "job-take-batch", 1)+"&batch_size=2", "", h.key())
		if want := `[{"id":"` + id + `","input":{},"traceparent":"` + traceparent + `"}]`; a.body != want || a.header.Get("Traceparent") != "" {
			t.Errorf("job-take-batch gives %s, header %q, want %s and none", a.body, a.header.Get("Traceparent"), want)
		}
	})
}

func TestAnInvalidOrRepeatedTraceContextIsDroppedWithoutAnError(t *testing.T) {
	bubble(t, func(w *testAPI) {
		for _, set := range []func(h http.Header){
			func(h http.Header) { h["Tracestate"] = []string{"a=1"} },
			func(h http.Header) {
				h["Traceparent"], h["Tracestate"] = []string{traceparent, traceparent}, []string{"a=1"}
			},
			func(h http.Header) {
				h["Traceparent"], h["Tracestate"] = []string{"ff" + traceparent[2:]}, []string{"a=1"}
			},
		} {
			r := w.request(w.t.Context(), "POST", "/v2/idle/run", `{"input":{}}`)
			set(r.Header)
			res, err := handlerTransport{w.handler}.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Fatalf("run with %v = %d, want 200", r.Header, res.StatusCode)
			}
			h := w.hand("w1")
			a := w.call("GET", h.path("job-take"), "", h.key())
			if strings.Contains(a.body, "trace") || a.header.Get("Traceparent") != "" || a.header.Get("Tracestate") != "" {
				t.Errorf("run with %v gives the worker %s %v, want no trace context", r.Header, a.body, a.header)
			}
		}
	})
}

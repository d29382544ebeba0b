package otel_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/podyard/podyard/backend/otel"
)

func Example() {
	tracer := otel.New(sdktrace.NewTracerProvider())
	h := tracer.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Header.Get("Traceparent")[:36], r.Header.Get("Traceparent")[36:52] != "00f067aa0ba902b7")
	}))
	r := httptest.NewRequest(http.MethodPost, "/v2/echo/run", nil)
	r.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	h.ServeHTTP(httptest.NewRecorder(), r)
	// Output:
	// 00-4bf92f3577b34da6a3ce929d0e0e4736- true
}

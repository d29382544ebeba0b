// Package otel makes the spans of OpenTelemetry for the requests, jobs, workers and webhooks of
// a server. It is a module of its own, so that other programs do not get the SDK.
//
// A [Tracer] wraps what a server is made of:
//
//   - Handler begins a span for each request, as a child of its traceparent.
//   - Jobs wraps the queue: "send ENDPOINT" for each job, of which the trace context is stored
//     with the job. So it outlasts restarts and retries, and workers get it.
//   - Jobs and Pods are observers too: "receive ENDPOINT" and "process ENDPOINT" of a job, "scale
//     ENDPOINT" and "start worker ENDPOINT" of the scaler, "pods.CALL" of a host's runtime.
//   - Sender wraps the sender of webhooks: "webhook POST" for each attempt. Its receiver gets the
//     context of that span.
//
// No span has a payload, a key or an owner. Sampling is that of the program's provider: with
// ParentBased(TraceIDRatioBased(0.01)) the caller decides, and else one request in 100 is
// sampled.
package otel

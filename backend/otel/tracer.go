package otel

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	podevents "github.com/podyard/podyard/pods/telemetry"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/telemetry"
)

// A Tracer makes spans. It is safe for concurrent use.
type Tracer struct {
	tracer trace.Tracer
	w3c    propagation.TraceContext
}

// New returns a Tracer that makes the spans of a provider.
func New(p trace.TracerProvider) *Tracer {
	return &Tracer{tracer: p.Tracer("github.com/podyard/podyard/backend/otel")}
}

// in returns a context with the span context of a job.
func (t *Tracer) in(ctx context.Context, of queue.Trace) context.Context {
	return t.w3c.Extract(ctx, propagation.MapCarrier{"traceparent": of.Parent, "tracestate": of.State})
}

// of returns the span context of ctx as it is stored with a job.
func (t *Tracer) of(ctx context.Context) queue.Trace {
	c := propagation.MapCarrier{}
	t.w3c.Inject(ctx, c)
	return queue.Trace{Parent: c["traceparent"], State: c["tracestate"]}
}

// Handler makes a span for each request of next. next sees the context of the span as the
// traceparent of the request.
func (t *Tracer) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if len(r.Header["Traceparent"]) == 1 { // one that is there twice is none (docs/decisions.md 45)
			ctx = t.w3c.Extract(ctx, propagation.HeaderCarrier(r.Header))
		}
		ctx, span := t.tracer.Start(ctx, r.Method+" "+route(r.URL.Path), trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(attribute.String("http.request.method", r.Method), attribute.String("url.path", r.URL.Path)))
		defer span.End()
		r = r.WithContext(ctx)
		r.Header = r.Header.Clone()
		r.Header.Del("Tracestate")
		t.w3c.Inject(ctx, propagation.HeaderCarrier(r.Header))
		s := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(s, r)
		span.SetAttributes(attribute.Int("http.response.status_code", s.status))
		if s.status >= 500 {
			span.SetStatus(codes.Error, http.StatusText(s.status))
		}
	})
}

// A statusWriter records the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is used by http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Queue makes a span for each job that is put into q, and stores its context with the job.
func (t *Tracer) Queue(q serverless.JobQueue) serverless.JobQueue { return &tracedQueue{q, t} }

type tracedQueue struct {
	serverless.JobQueue
	t *Tracer
}

// Unwrap returns the queue.
func (q *tracedQueue) Unwrap() serverless.JobQueue { return q.JobQueue }

// Enqueue implements queue.JobQueue.
func (q *tracedQueue) Enqueue(ctx context.Context, jobs []queue.Job) error {
	spans := make([]trace.Span, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		ctx := ctx
		if j.Trace.Parent != "" {
			ctx = q.t.in(ctx, j.Trace)
		}
		ctx, spans[i] = q.t.tracer.Start(ctx, "send "+j.Endpoint, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
			append(messaging(j.Ref), attribute.Int("messaging.message.body.size", len(j.Input)))...))
		j.Trace = q.t.of(ctx)
	}
	err := q.JobQueue.Enqueue(ctx, jobs)
	for _, span := range spans {
		end(span, err)
	}
	return err
}

func messaging(ref queue.Ref) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.system", "podyard"), attribute.String("messaging.destination.name", ref.Endpoint),
		attribute.String("messaging.message.id", string(ref.ID)),
	}
}

func end(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// Sender makes a span for each attempt of next, whose context the receiver gets.
func (t *Tracer) Sender(next serverless.Sender) serverless.Sender { return tracedSender{next, t} }

type tracedSender struct {
	next serverless.Sender
	t    *Tracer
}

// Send implements serverless.Sender.
func (s tracedSender) Send(ctx context.Context, d *serverless.Delivery) (int, error) {
	if d.Job.Trace.Parent == "" {
		return s.next.Send(ctx, d)
	}
	ctx, span := s.t.tracer.Start(s.t.in(ctx, d.Job.Trace), "webhook POST", trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(append(messaging(d.Job.Ref), attribute.Int("podyard.webhook.attempt", d.Tries+1))...))
	traced := *d
	traced.Job.Trace = s.t.of(ctx)
	status, err := s.next.Send(ctx, &traced)
	span.SetAttributes(attribute.Int("http.response.status_code", status))
	if err == nil && (status < 200 || status > 299) {
		end(span, errors.New("the receiver answered "+strconv.Itoa(status)))
		return status, err
	}
	end(span, err)
	return status, err
}

// Jobs returns the observer for serverless.Options, which then tells next, if it is not nil.
func (t *Tracer) Jobs(next telemetry.Observer) telemetry.Observer { return jobObserver{t, next} }

type jobObserver struct {
	t    *Tracer
	next telemetry.Observer
}

// Job implements telemetry.Observer.
func (o jobObserver) Job(e telemetry.JobEvent) {
	if o.next != nil {
		o.next.Job(e)
	}
	if e.Trace.Parent == "" {
		return
	}
	switch e.Change {
	case telemetry.JobClaimed:
		o.span(&e, "receive ", e.State.Started, e.State.Started, nil)
	case telemetry.JobEnded:
		if e.State.Started != 0 {
			o.span(&e, "process ", e.State.Started, e.State.Finished, outcome(e.State))
		}
	}
}

// span makes a span of a job that is over, as a child of its send span and with a link to it.
func (o jobObserver) span(e *telemetry.JobEvent, name string, from, to queue.Instant, failed error) {
	ctx := o.t.in(context.Background(), *e.Trace)
	_, span := o.t.tracer.Start(ctx, name+e.Endpoint, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(from.Time()),
		trace.WithLinks(trace.Link{SpanContext: trace.SpanContextFromContext(ctx)}),
		trace.WithAttributes(append(messaging(*e.Ref), attribute.String("podyard.worker", string(e.State.Worker)),
			attribute.Int("podyard.deliveries", int(e.State.Deliveries)), attribute.String("podyard.status", e.State.Status.String()))...))
	if failed != nil {
		span.SetStatus(codes.Error, failed.Error())
	}
	span.End(trace.WithTimestamp(to.Time()))
}

func outcome(s *queue.State) error {
	if s.Status == queue.Failed || s.Status == queue.TimedOut {
		return errors.New(s.Status.String())
	}
	return nil
}

// Worker implements telemetry.Observer.
func (o jobObserver) Worker(e telemetry.WorkerEvent) {
	if o.next != nil {
		o.next.Worker(e)
	}
	at := e.At.Time()
	switch e.Change {
	case telemetry.Scaled:
		_, span := o.t.tracer.Start(context.Background(), "scale "+e.Endpoint, trace.WithTimestamp(at), trace.WithAttributes(
			attribute.Int("podyard.want", e.Want), attribute.Int("podyard.start", e.Start), attribute.Int("podyard.stop", e.Stop), attribute.String("podyard.reason", e.Reason)))
		span.End(trace.WithTimestamp(at))
	case telemetry.WorkerStarted:
		_, span := o.t.tracer.Start(context.Background(), "start worker "+e.Endpoint, trace.WithTimestamp(at.Add(-e.Took)), trace.WithAttributes(
			attribute.String("podyard.worker", string(e.Worker)), attribute.String("podyard.result", e.Result)))
		span.End(trace.WithTimestamp(at))
	}
}

// Webhook implements telemetry.Observer.
func (o jobObserver) Webhook(e telemetry.WebhookEvent) {
	if o.next != nil {
		o.next.Webhook(e)
	}
}

// Loop implements telemetry.Observer.
func (o jobObserver) Loop(e telemetry.LoopEvent) {
	if o.next != nil {
		o.next.Loop(e)
	}
}

// Pods returns the observer for pods.Options, which then tells next, if it is not nil.
func (t *Tracer) Pods(next podevents.Observer) podevents.Observer { return podObserver{t, next} }

type podObserver struct {
	t    *Tracer
	next podevents.Observer
}

// Pod implements telemetry.Observer.
func (o podObserver) Pod(e podevents.PodEvent) {
	if o.next != nil {
		o.next.Pod(e)
	}
}

// Call implements telemetry.Observer.
func (o podObserver) Call(e podevents.CallEvent) {
	if o.next != nil {
		o.next.Call(e)
	}
	if e.Call == "list" {
		return // it is repeated all the time
	}
	_, span := o.t.tracer.Start(context.Background(), "pods."+e.Call, trace.WithTimestamp(e.At.Add(-e.Took)), trace.WithAttributes(
		attribute.String("podyard.host", e.Host), attribute.String("podyard.pod", e.Pod)))
	if e.Err != nil {
		span.SetStatus(codes.Error, "the runtime failed the call")
	}
	span.End(trace.WithTimestamp(e.At))
}

// Loop implements telemetry.Observer.
func (o podObserver) Loop(e podevents.LoopEvent) {
	if o.next != nil {
		o.next.Loop(e)
	}
}

// route returns the path of a request without ids, so that spans of one operation share a name.
func route(path string) string {
	part := strings.Split(path, "/")
	switch {
	case len(part) > 3 && part[1] == "v2" && isJobPath(part[3]):
		return "/v2/{endpoint}/" + part[3]
	case len(part) > 2:
		return "/" + part[1] + "/" + part[2]
	}
	return path
}

func isJobPath(name string) bool {
	switch name {
	case "run", "runsync", "status", "status-sync", "stream", "cancel", "retry", "purge-queue", "health", "requests", "metrics", "events", "actions", "dead",
		"job-take", "job-take-batch", "job-done", "job-stream", "job-stop", "ping", "openai", "batches", "schedules":
		return true
	}
	return false
}

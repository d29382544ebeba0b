package httpapi

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// runRequest reads the body of run and runsync. Unknown members of the top-level object are
// ignored. The input is kept byte for byte.
func (c *call) runRequest(limit int64) (r serverless.Request, err error) {
	body, err := c.body(limit)
	if err != nil {
		return r, err
	}
	r, err = DecodeRun(body)
	r.Endpoint, r.Trace, r.Idempotency = c.target(), c.trace(), c.keyed
	return r, err
}

// DecodeRun reads the body of run, for serverless.Options.DecodeRun. A body that is not JSON is
// an error; other faults are in Request.Violations. The request may share memory with body.
func DecodeRun(body []byte) (r serverless.Request, err error) {
	o, err := parse(body, strictEnvelope, &r.Violations)
	if err != nil {
		return r, err
	}
	if err := o.checkRunNames(); err != nil {
		return r, err
	}
	r.Checked = true
	o.run(&r)
	if 2*len(r.Input) < len(body) {
		r.Input = append([]byte(nil), r.Input...) // so that the rest of the body can be freed
	}
	return r, nil
}

func (o *object) run(r *serverless.Request) {
	r.Input = o.take("input", "a JSON object", "{")
	r.Webhook, r.Policy, r.Queue, r.Extra = o.webhook(), o.policy(), o.queue(), o.s3Config()
}

// runBody is the body of run and runsync in the OpenAPI document.
func runBody() *openapi.Schema {
	s := recorded(func(o *object) { o.run(&serverless.Request{}) })
	s.Required = []string{"input"}
	return s
}

// checkRunNames returns an error when a member of the body of run, other than its input, has a
// repeated name.
func (o *object) checkRunNames() error {
	for _, name := range [...]string{"policy", "queue", "s3Config"} {
		if err := o.checkNames(name); err != nil {
			return err
		}
	}
	return nil
}

// trace returns the trace context of the request. A traceparent that is there twice is none;
// the lines of tracestate are one list (docs/decisions.md 45).
func (c *call) trace() (t serverless.Trace) {
	if p := c.r.Header["Traceparent"]; len(p) == 1 {
		t = serverless.Trace{Parent: p[0], State: strings.Join(c.r.Header["Tracestate"], ",")}
	}
	return t
}

// webhook returns the URL, or "" if it is absent or null. The service checks the URL's
// form.
func (o *object) webhook() string {
	if o.isNull("webhook") {
		return ""
	}
	s := o.str("webhook")
	if s != nil && *s == "" {
		o.faults.Add(problem.Invalid, o.pointer("webhook"), "must be an absolute http or https URL")
	}
	url := o.text("webhook")
	o.rules("webhook", func(s *openapi.Schema) { s.NotEmpty().Format = "uri" })
	return url
}

// policy reads the object of docs/interface.md 8.1.
func (o *object) policy() (p serverless.Policy) {
	if o.isNull("policy") {
		return p
	}
	sub := o.object("policy")
	if sub == nil {
		return p
	}
	o.rules("policy", func(s *openapi.Schema) { s.Says("Limits of this job.") })
	p.ExecutionTimeout = sub.definiteMillis("executionTimeout")
	sub.rules("executionTimeout", func(s *openapi.Schema) {
		s.Says("Milliseconds that the job may run once a worker has it.").Between(inMillis(queue.MinExecTimeout), inMillis(queue.MaxExecTimeout))
	})
	p.TTL = sub.definiteMillis("ttl")
	sub.rules("ttl", func(s *openapi.Schema) {
		s.Says("Milliseconds from submission to deletion.").Between(inMillis(queue.MinTTL), inMillis(queue.MaxTTL+queue.MaxStartAfter)).Defaults(queue.DefaultTTL.Milliseconds())
	})
	if low := sub.boolean("lowPriority"); low != nil {
		p.LowPriority = *low
	}
	sub.rules("lowPriority", func(s *openapi.Schema) { s.Says("The job does not make workers start.") })
	return p
}

// queue reads the object of docs/decisions.md 39.
func (o *object) queue() (q serverless.QueueOptions) {
	if o.isNull("queue") {
		return q
	}
	sub := o.object("queue")
	if sub == nil {
		return q
	}
	if !sub.isNull("priority") {
		q.Priority = sub.integer("priority")
	}
	sub.rules("priority", func(s *openapi.Schema) { s.Between(0, queue.MaxPriority).Defaults(queue.DefaultPriority) })
	if !sub.isNull("key") {
		q.Key = sub.str("key")
	}
	sub.rules("key", func(s *openapi.Schema) { s.NotEmpty().MaxLength = queue.MaxKey })
	sub.startAfter(&q)
	sub.rules("startAfter", func(s *openapi.Schema) {
		// A list of types, as in {"type":["integer","string"]}, stops oapi-codegen.
		s.Type, s.AnyOf = nil, []*openapi.Schema{openapi.Of("integer"), openapi.Of("string"), openapi.Of("null")}
	})
	q.Retry = sub.retry("retry")
	q.Retain = sub.millis("retain")
	sub.rules("retain", func(s *openapi.Schema) {
		s.Says("Milliseconds for which the result is kept from the end of the job, also past its ttl.").Between(inMillis(queue.MinRetain), inMillis(queue.MaxRetain))
	})
	q.Unique = sub.unique("unique")
	sub.unknown()
	o.rules("queue", func(s *openapi.Schema) { s.Added = true })
	return q
}

// unique reads the object of docs/decisions.md 60; nil when it is absent or null.
func (o *object) unique(name string) *serverless.UniqueOptions {
	if o.isNull(name) {
		return nil
	}
	sub := o.object(name)
	if sub == nil {
		return nil
	}
	u := &serverless.UniqueOptions{Key: sub.text("key")}
	sub.rules("key", func(s *openapi.Schema) { s.NotEmpty().MaxLength = queue.MaxKey })
	whiles := [...]string{queue.WhileQueued: "queued", queue.WhileActive: "active", queue.ForPeriod: "period"}
	u.While = queue.UniqueWhile(max(slices.Index(whiles[1:], sub.oneOf("while", whiles[1:]...))+1, 0))
	u.Period = sub.millis("period")
	sub.rules("period", func(s *openapi.Schema) { s.Between(inMillis(queue.MinPeriod), inMillis(queue.MaxPeriod)) })
	if !sub.isNull("onConflict") {
		u.Replace = sub.oneOf("onConflict", "keep", "replace") == "replace"
	}
	sub.unknown()
	o.rules(name, func(s *openapi.Schema) { s.Required = []string{"key", "while"} })
	return u
}

// startAfter reads milliseconds from now, or an instant.
func (o *object) startAfter(q *serverless.QueueOptions) {
	m := o.find("startAfter")
	if m == nil || m.value.Kind() != '"' {
		q.StartAfter = o.millis("startAfter")
		return
	}
	at, fault := instantOf(o.text("startAfter"), "must be milliseconds from now, or a time in RFC 3339")
	if fault != "" {
		o.faults.Add(problem.Invalid, o.pointer("startAfter"), "%s", fault)
	}
	q.StartAt = at
}

// retry reads a retry policy; nil when it is absent or null. A member that is absent or null
// has its default.
func (o *object) retry(name string) *serverless.RetryPolicy {
	if o.isNull(name) {
		return nil
	}
	sub := o.object(name)
	if sub == nil {
		return nil
	}
	p := serverless.DefaultRetry()
	if !sub.isNull("attempts") {
		if n := sub.integer("attempts"); n != nil {
			p.Attempts = uint8(max(min(*n, math.MaxUint8), 0))
		}
	}
	sub.millisInto("delay", &p.Delay)
	sub.numberInto("factor", &p.Factor)
	sub.millisInto("maxDelay", &p.MaxDelay)
	sub.numberInto("jitter", &p.Jitter)
	if !sub.isNull("timeouts") {
		if yes := sub.boolean("timeouts"); yes != nil {
			p.Timeouts = *yes
		}
	}
	sub.unknown()
	o.rules(name, retryRules)
	return &p
}

// retryRules are the bounds that queue.RetryPolicy.Check checks, and the defaults.
func retryRules(s *openapi.Schema) {
	def := serverless.DefaultRetry()
	s.At("attempts").Between(1, queue.MaxAttempts).Defaults(def.Attempts)
	s.At("delay").AtLeast(0).Defaults(def.Delay.Milliseconds())
	s.At("factor").Between(1, queue.MaxFactor).Defaults(def.Factor)
	s.At("maxDelay").AtLeast(0).Defaults(def.MaxDelay.Milliseconds())
	s.At("jitter").Between(0, 1).Defaults(def.Jitter)
	s.At("timeouts").Defaults(def.Timeouts)
}

// millisInto sets d to a number of milliseconds unless the member is absent or null.
func (o *object) millisInto(name string, d *time.Duration) {
	if v := o.millis(name); v != nil {
		*d = *v
	}
}

// numberInto sets f to a number unless the member is absent or null.
func (o *object) numberInto(name string, f *float32) {
	if o.isNull(name) {
		return
	}
	if v := o.take(name, "a number", "0"); v != nil {
		n, _ := strconv.ParseFloat(string(v), 32) // the number nearest to one that is out of range
		*f = float32(n)
	}
}

// millis reads a number of milliseconds; nil when it is absent or null.
func (o *object) millis(name string) *time.Duration {
	if o.isNull(name) {
		return nil
	}
	return o.definiteMillis(name)
}

// definiteMillis is millis for a member that must not be null.
func (o *object) definiteMillis(name string) *time.Duration {
	n := o.wide(name)
	if n == nil {
		return nil
	}
	const most = math.MaxInt64 / int64(time.Millisecond)
	d := time.Duration(max(min(*n, most), -most)) * time.Millisecond
	return &d
}

// s3Config checks that the known members are strings. It returns the object unchanged.
func (o *object) s3Config() []byte {
	if o.isNull("s3Config") {
		return nil
	}
	v := o.take("s3Config", "an object", "{")
	if v == nil && o.shape == nil {
		return nil
	}
	sub := o.object("s3Config")
	for _, name := range [...]string{"accessId", "accessSecret", "bucketName", "endpointUrl"} {
		if !sub.isNull(name) {
			sub.str(name)
		}
	}
	b := append([]byte(`{"s3Config":`), v...)
	return append(b, '}')
}

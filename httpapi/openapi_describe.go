package httpapi

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi/audit"
	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/batches"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/schedules"
)

// A description is what the document says of an operation beyond the table of operations.
type description struct {
	summary  string // a few words
	text     string // more, or empty
	params   []*openapi.Parameter
	body     *openapi.Schema // of the request; nil: it has none
	optional bool            // the body may be absent
	answers  answers
	media    string // of a success; empty: JSON
	headers  map[string]*openapi.Header
}

// answers are the bodies of successful answers by status; nil is no body.
type answers map[int]*openapi.Schema

func ok(s *openapi.Schema) answers      { return answers{http.StatusOK: s} }
func created(s *openapi.Schema) answers { return answers{http.StatusCreated: s} }
func gone() answers                     { return answers{http.StatusNoContent: nil} }

// A describer makes schemas of the bodies that handlers write.
type describer struct{ openapi.Builder }

func newDescriber() *describer {
	return &describer{openapi.Builder{Components: map[string]*openapi.Schema{}, Known: knownTypes(), Name: componentName}}
}

// componentNames are those of structs whose names on the wire differ from their Go names.
func componentNames() map[string]string {
	return map[string]string{
		"attemptBody": "DeliveryAttempt", "changeBody": "ReleaseChange", "stockBody": "Availability", "persistentBody": "PersistentMount",
		"networkBody": "NetworkMount", "gpuBody": "GpuConfig", "cpuBody": "CpuConfig", "vcpuBody": "VcpuRange", "portBody": "RuntimePort",
		"endpointGPUBody": "EndpointGpuConfig", "gpuTypeBody": "GpuType", "cpuTypeBody": "CpuType", "volumeBody": "NetworkVolume",
		"hostBody": "HostState", "resourceBody": "HostResource", "cudaBody": "CudaVersion", "sshBody": "PodSsh", "sshEndpoint": "SshEndpoint",
		"gpuLoad": "GpuUtilization", "requestURLs": "EndpointRequestUrls", "Document": "Error", "gpuPriceBody": "GpuPrice", "cpuPriceBody": "CpuPrice",
	}
}

// componentName returns the name of the component of a struct. One without a name of its own
// stands where it is used.
func componentName(t reflect.Type) string {
	name := t.Name()
	if t == reflect.TypeFor[audit.Record]() {
		return "AuditRecord"
	}
	if name == "" || strings.Contains(name, "[") {
		return ""
	}
	if n := componentNames()[name]; n != "" {
		return n
	}
	name = strings.TrimSuffix(name, "Body")
	return strings.ToUpper(name[:1]) + name[1:]
}

func knownTypes() map[reflect.Type]*openapi.Schema {
	at := &openapi.Schema{Type: openapi.Types{"string"}, Format: "date-time"}
	return map[reflect.Type]*openapi.Schema{
		reflect.TypeFor[wireTime]():                at,
		reflect.TypeFor[time.Time]():               at,
		reflect.TypeFor[json.RawMessage]():         {},
		reflect.TypeFor[pods.Status]():             values(pods.Provisioning, pods.Starting, pods.Running, pods.Exited, pods.Errored, pods.Terminated),
		reflect.TypeFor[pods.Action]():             values(pods.Start, pods.Stop, pods.Restart, pods.Terminate),
		reflect.TypeFor[pods.Cloud]():              values(pods.Secure, pods.Community),
		reflect.TypeFor[pods.LogSource]():          values(pods.ContainerLog, pods.SystemLog),
		reflect.TypeFor[templates.Category]():      values(templates.CPU, templates.NVIDIA, templates.AMD),
		reflect.TypeFor[catalog.Manufacturer]():    values(catalog.NVIDIA, catalog.AMD, catalog.Unknown),
		reflect.TypeFor[catalog.Region]():          values(catalog.Regions()...),
		reflect.TypeFor[catalog.VolumeType]():      values(catalog.Standard, catalog.HighPerformance),
		reflect.TypeFor[level]():                   values(none, low, medium, high),
		reflect.TypeFor[billing.BucketSize]():      values(billing.Hour, billing.Day, billing.Week, billing.Month, billing.Year),
		reflect.TypeFor[endpoints.Type]():          values(endpoints.QueueType, endpoints.LoadBalancerType),
		reflect.TypeFor[endpoints.FlashBoot]():     values(endpoints.FlashBootOff, endpoints.FlashBootOn, endpoints.FlashBootPriority),
		reflect.TypeFor[endpoints.ScalingType]():   values(endpoints.QueueDelay, endpoints.RequestCount),
		reflect.TypeFor[serverless.WorkerStatus](): values(serverless.StatusRunning, serverless.StatusIdle, serverless.StatusInitializing, serverless.StatusThrottled, serverless.StatusUnhealthy),
		reflect.TypeFor[serverless.WebhookState](): values(serverless.WebhookPending, serverless.WebhookDelivered, serverless.WebhookFailed),
		reflect.TypeFor[schedules.Overlap]():       values(schedules.OverlapSkip, schedules.OverlapQueue, schedules.OverlapAllow),
		reflect.TypeFor[schedules.CatchUp]():       values(schedules.CatchUpNone, schedules.CatchUpLast, schedules.CatchUpAll),
		reflect.TypeFor[schedules.Decision]():      values(schedules.Submitted, schedules.Skipped, schedules.Missed, schedules.Refused, schedules.Disabled, schedules.Requested),
		reflect.TypeFor[batches.Status]():          values(batches.Draft, batches.Finalized, batches.Failed, batches.Cancelled),
		reflect.TypeFor[audit.Kind]():              values(audit.Change, audit.Refusal, audit.Dropped),
	}
}

// values returns the schema of a closed set.
func values[S ~string](list ...S) *openapi.Schema {
	return openapi.OneOf(openapi.Of("string"), list...)
}

func jobStatuses() *openapi.Schema {
	return values(queue.InQueue.String(), queue.InProgress.String(), queue.Completed.String(), queue.Failed.String(), queue.Cancelled.String(), queue.TimedOut.String())
}

// list returns the schema of {"member": [item]}. owned says that an operator can name an
// owner; the items then have the owner.
func (b *describer) list(member string, item *openapi.Schema, owned bool) *openapi.Schema {
	items := openapi.List(item)
	if owned {
		items.ListOwned = fields(map[string]*openapi.Schema{"owner": openapi.Of("string"), "item": item}, "owner", "item")
	}
	return fields(map[string]*openapi.Schema{member: items}, member)
}

// fields returns the schema of an object.
func fields(members map[string]*openapi.Schema, required ...string) *openapi.Schema {
	return &openapi.Schema{Type: openapi.Types{"object"}, Properties: members, Required: required}
}

// inQuery returns a parameter of the query.
func inQuery(name string, s *openapi.Schema, text string) *openapi.Parameter {
	return &openapi.Parameter{Name: name, In: "query", Schema: s, Description: text}
}

// listInQuery returns a parameter that is repeated, or has commas.
func listInQuery(name string, item *openapi.Schema, text string) *openapi.Parameter {
	p := inQuery(name, openapi.List(item), text)
	p.Style, p.Explode = "form", new(false)
	return p
}

// flag returns a boolean parameter.
func flag(name, text string) *openapi.Parameter { return inQuery(name, openapi.Of("boolean"), text) }

// number returns an integer parameter.
func number(name string, lo, hi int, def any, text string) *openapi.Parameter {
	return inQuery(name, openapi.Of("integer").Between(lo, hi).Defaults(def), text)
}

// millisParam returns a parameter in milliseconds.
func millisParam(name string, lo, hi time.Duration, def any, text string) *openapi.Parameter {
	return number(name, inMillis(lo), inMillis(hi), def, text)
}

// instant returns a parameter that is a time.
func instant(name, text string) *openapi.Parameter {
	return inQuery(name, &openapi.Schema{Type: openapi.Types{"string"}, Format: "date-time"}, text)
}

// addedParams marks parameters as additions.
func addedParams(list ...*openapi.Parameter) []*openapi.Parameter {
	for _, p := range list {
		p.Added = true
	}
	return list
}

// problems are the error answers that operations share, by the name of their component.
func (b *describer) problems() map[string]*openapi.Response {
	doc := openapi.For[problem.Document](&b.Builder)
	jobs := b.Component("JobsError", withError(b.Components["Error"]))
	media := "application/problem+json"
	list := map[string]*openapi.Response{
		"OpenAIProblem": {Description: "The request failed. The body has the form of OpenAI's errors.", Content: jsonOf("application/json", openAIErrors())},
	}
	for k := range problem.WorkerTimeout + 1 {
		name := strings.ReplaceAll(k.Title(), " ", "")
		list[name] = &openapi.Response{Description: k.Title() + ".", Content: jsonOf(media, doc), Headers: retryHeaders(k)}
		list["Jobs"+name] = &openapi.Response{Description: k.Title() + ".", Content: jsonOf(media, jobs), Headers: retryHeaders(k)}
	}
	list["Problem"] = &openapi.Response{Description: "The request failed.", Content: jsonOf(media, doc)}
	list["JobsProblem"] = &openapi.Response{Description: "The request failed.", Content: jsonOf(media, jobs)}
	return list
}

// withError returns the schema of an error of the jobs API, which has one more member.
func withError(s *openapi.Schema) *openapi.Schema {
	same := *s
	same.Properties = map[string]*openapi.Schema{"error": openapi.Of("string").Says("The detail again, which the SDKs read.")}
	maps.Copy(same.Properties, s.Properties)
	same.Required = append([]string{"error"}, s.Required...)
	return &same
}

func openAIErrors() *openapi.Schema {
	text := openapi.Of("string")
	orNull := func() *openapi.Schema { return openapi.OrNull(openapi.Of("string")) }
	inner := fields(map[string]*openapi.Schema{"message": text, "type": text, "param": orNull(), "code": orNull()}, "message")
	return fields(map[string]*openapi.Schema{"error": inner}, "error")
}

func jsonOf(media string, s *openapi.Schema) map[string]openapi.Media {
	return map[string]openapi.Media{media: {Schema: s}}
}

// retryHeaders are those of an error that a repetition can mend.
func retryHeaders(k problem.Kind) map[string]*openapi.Header {
	if k != problem.TooManyRequests && k != problem.Unavailable {
		return nil
	}
	return map[string]*openapi.Header{"Retry-After": {Description: "Seconds to wait. Absent: waiting does not help.", Schema: openapi.Of("integer")}}
}

func quotaHeaders() map[string]*openapi.Header {
	return map[string]*openapi.Header{
		"RateLimit":        {Description: "What is left of each quota (r), and the seconds until it begins anew (t).", Schema: openapi.Of("string")},
		"RateLimit-Policy": {Description: "Each quota (q) and the length of its window in seconds (w).", Schema: openapi.Of("string")},
	}
}

// problemNames are the components for the errors of an operation, by status.
func problemNames(o *operation, d *description) map[string]string {
	prefix := ""
	switch o.API {
	case APIOpenAI:
		return map[string]string{"default": "OpenAIProblem"}
	case APIJobs, APIWorkers, APIBalance:
		prefix = "Jobs"
	}
	names := map[string]string{"default": prefix + "Problem"}
	add := func(kinds ...problem.Kind) {
		for _, k := range kinds {
			names[strconv.Itoa(k.Status())] = prefix + strings.ReplaceAll(k.Title(), " ", "")
		}
	}
	if o.Scope != ScopeNone {
		add(problem.Unauthorized)
	}
	if o.Scope != ScopeNone && o.Scope != ScopeAny {
		add(problem.Forbidden)
	}
	if o.Limit != LimitNone {
		add(problem.TooManyRequests)
	}
	if strings.Contains(o.Path, "{") || o.NotOffered != "" {
		add(problem.NotFound)
	}
	if o.Keyed {
		add(problem.NotFound, problem.Conflict)
	}
	if d.body != nil {
		add(problem.BadRequest, problem.Invalid)
	}
	if o.API == APIBalance {
		add(problem.BadRequest, problem.TooLarge, problem.BadGateway, problem.WorkerTimeout)
		return names
	}
	if len(d.params) > 0 || o.Paged {
		add(problem.Invalid)
	}
	return names
}

package httpapi

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
)

func streamOperations() []operation {
	return group(APIJobs, AreaJobs,
		op("stream", "GET,POST /v2/{endpoint}/stream/{job}", ScopeEndpointRead, streamJob, rate(ratelimit.Stream), sideEffects, staysOpen(budget.Connections)),
	)
}

func (b *describer) describeStreams() map[string]description {
	status := map[string]*openapi.Header{"Job-Status": {Description: "The status of the job.", Schema: jobStatuses()}}
	return map[string]description{
		"stream": {summary: "Read what a job has streamed since the last read", text: aboutStreams, params: streamParams(), answers: ok(b.streamSchema()), headers: status},
	}
}

const aboutStreams = "Each item is handed out once. The terminal status comes in an empty answer after the last one."

func streamParams() []*openapi.Parameter {
	return []*openapi.Parameter{
		waitParam(serverless.DefaultStreamWait.Milliseconds()),
		inQuery("format", values("array", "envelope"), "A bare array, or an object with the status. Absent: by the client, an array unless it is an SDK that needs the object."),
	}
}

func (b *describer) streamSchema() *openapi.Schema {
	item := fields(map[string]*openapi.Schema{"output": {}, "metrics": openapi.Open()}, "output")
	item.AdditionalProperties = &openapi.Schema{} // what the worker puts there
	item = b.Component("StreamItem", item)
	envelope := fields(map[string]*openapi.Schema{"status": jobStatuses(), "stream": openapi.List(item)}, "status", "stream")
	return &openapi.Schema{AnyOf: []*openapi.Schema{openapi.List(item), envelope}}
}

// Sizes of the text around all items and around each item. A whole answer is at most
// serverless.MaxChunk long, except for a single item that cannot be split
// (docs/decisions.md 30).
const (
	aroundItems = len(`{"status":"IN_PROGRESS","stream":[]}`)
	aroundItem  = len(`,`) + len(noMetrics)
	noMetrics   = `,"metrics":{}`
)

// streamLinger is the time in which the tokens of a fast stream are collected for one answer.
const streamLinger = 5 * time.Millisecond

// linger returns how long an answer of a stream collects items. A clock that stands still must not
// hold it.
func (c *call) linger() time.Duration {
	if c.clock == (clock.System{}) {
		return streamLinger
	}
	return 0
}

// streamJob returns what a job has streamed since the last call (docs/decisions.md 30).
func streamJob(c *call) error {
	array, err := c.wantsArray()
	if err != nil {
		return c.jobParamError(err)
	}
	wait, err := c.jobWait(serverless.DefaultStreamWait)
	if err != nil {
		return err
	}
	ctx, cancel := c.waitContext(wait)
	defer cancel()
	written := false
	q := serverless.StreamQuery{Wait: wait, MaxBytes: serverless.MaxChunk - aroundItems, Overhead: aroundItem, Linger: c.linger()}
	err = c.streamRoomy(ctx, c.owner, c.ref(), q, keepsNothing, func(p serverless.StreamPart) error {
		written = true
		return c.streamPart(p, array)
	})
	if written {
		return nil // the answer was written, or the client has disconnected
	}
	return err
}

// keepsNothing is for streamRoomy: nothing of the parts before is kept.
func keepsNothing() int64 { return 0 }

// streamRoomy is serverless.Service.Stream for an answer that keeps so many bytes of the parts before. A
// large part waits for its room in the queue, and not in memory.
func (c *call) streamRoomy(ctx context.Context, owner string, ref serverless.Ref, q serverless.StreamQuery, kept func() int64, write func(serverless.StreamPart) error) error {
	for {
		var needs int64
		err := c.Jobs.Stream(ctx, owner, ref, q, func(p serverless.StreamPart) error {
			n := kept()
			for _, it := range p.Items {
				n += int64(len(it))
			}
			if !c.tryRoom(n) {
				needs = n
				return errRoomless
			}
			return write(p)
		})
		if needs == 0 {
			return err
		}
		if err := c.roomForAnswer(needs); err != nil {
			return err
		}
	}
}

var errRoomless = errors.New("httpapi: there is no room for a part")

// streamPart writes one answer. Its items count as delivered only after they have left this
// process.
func (c *call) streamPart(p serverless.StreamPart, array bool) error {
	b := appendPart(p, array)
	h := c.w.Header()
	h.Set("Job-Status", p.Status.String())
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(b)))
	h.Set("Cache-Control", "no-store")
	c.w.WriteHeader(http.StatusOK)
	if _, err := c.w.Write(b); err != nil {
		return err
	}
	if err := http.NewResponseController(c.w).Flush(); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// appendPart appends the body of one answer: an array of items, or the envelope around it.
func appendPart(p serverless.StreamPart, array bool) []byte {
	size := 64
	for _, it := range p.Items {
		size += len(it) + 16
	}
	b := make([]byte, 0, size)
	if array {
		return appendItems(b, p.Items, true)
	}
	b = append(b, `{"status":"`...)
	b = append(b, p.Status.String()...)
	b = append(b, `","stream":`...)
	return append(appendItems(b, p.Items, false), '}')
}

func appendItems(b []byte, items [][]byte, array bool) []byte {
	var f metricsFinder
	b = append(b, '[')
	for i, it := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = f.appendItem(b, it, array)
	}
	return append(b, ']')
}

// A metricsFinder finds the metrics of items. It uses one decoder for all items, because an
// answer of 1 MB can have 40,000.
type metricsFinder struct {
	item bytes.Buffer
	dec  jsontext.Decoder
}

// appendItem appends an item. In an array, every item gets metrics, if only an empty
// object. Metrics that are not an object are dropped: an earlier version stored them.
func (f *metricsFinder) appendItem(b, item []byte, array bool) []byte {
	kind := f.kind(item)
	if kind == '{' || kind == 0 && !array {
		return append(b, item...)
	}
	if kind != 0 {
		item = (&object{faults: &problem.Violations{}}).nested("", item).without("metrics")
	}
	if !array {
		return append(b, item...)
	}
	b = append(b, item[:len(item)-1]...)
	return append(append(b, noMetrics...), '}')
}

// kind returns the kind of an item's metrics, or 0 if it has none.
func (f *metricsFinder) kind(item []byte) jsontext.Kind {
	if !bytes.Contains(item, []byte(`metrics"`)) && !bytes.Contains(item, []byte(`\u`)) {
		return 0
	}
	f.item = *bytes.NewBuffer(item)
	f.dec.Reset(&f.item, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if _, err := f.dec.ReadToken(); err != nil {
		return 0
	}
	for f.dec.PeekKind() == '"' {
		quoted, err := f.dec.ReadValue()
		if err != nil {
			return 0
		}
		if string(quoted) == `"metrics"` || bytes.IndexByte(quoted, '\\') >= 0 && unquote(quoted) == "metrics" {
			return f.dec.PeekKind()
		}
		if f.dec.SkipValue() != nil {
			return 0
		}
	}
	return 0
}

// hasWrongMetrics reports whether an item has metrics that are not an object.
func (o *object) hasWrongMetrics() bool {
	m := o.find("metrics")
	return m != nil && m.value.Kind() != '{'
}

// wantsArray decides between the interface's bare array and the envelope that the official
// SDKs parse. An SDK is recognized by its user agent or by the method POST. The Python
// client is recognized by a content type on a request without a body.
func (c *call) wantsArray() (bool, error) {
	format, err := queryOneOf(c, "format", "", "array", "envelope")
	if err != nil || format != "" {
		return format == "array", err
	}
	agent := strings.ToLower(c.r.UserAgent())
	python := strings.HasPrefix(agent, "python-requests/") || strings.Contains(agent, "aiohttp/")
	bare := c.r.Method == http.MethodGet && c.r.ContentLength == 0 && c.r.Header.Get("Content-Type") == "application/json"
	return !(strings.HasPrefix(agent, "runpod-") || c.r.Method == http.MethodPost || python && bare), nil
}

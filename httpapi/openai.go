package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
)

func openAIOperations() []operation {
	return group(APIOpenAI, AreaJobs,
		op("openai", "GET,POST /v2/{endpoint}/openai/{route...}", ScopeEndpointRun, proxyOpenAI, rate(ratelimit.OpenAI), sideEffects, staysOpen(budget.Connections)),
	)
}

func (b *describer) describeOpenAI() map[string]description {
	anything := &openapi.Schema{}
	return map[string]description{
		"openai": {summary: "Make a request to the worker's OpenAI interface", text: "The route may have slashes. With stream, the answer is an event stream.", body: anything, optional: true, answers: ok(anything)},
	}
}

// proxyOpenAI passes a request of OpenAI's interface to a worker as a job. The input is
// {"openai_route":"/v1/...","openai_input":{the body}}, as workers with an OpenAI front end
// expect. Errors have OpenAI's form.
func proxyOpenAI(c *call) error {
	input, streams, err := c.openaiInput()
	if err != nil {
		return err
	}
	endpoint := c.r.PathValue("endpoint")
	j, err := c.Jobs.Submit(c.r.Context(), c.owner, endpoint, serverless.Request{
		Endpoint: c.target(), Input: input, Checked: true, Sync: true, OpenAI: true, Wait: serverless.MaxWait, Trace: c.trace(),
	})
	if err != nil {
		return err
	}
	c.in.Release() // the queue has its own copy; the worker's reports, which this request waits for, may need the room
	rest := &openaiAnswer{call: c, streams: streams}
	if err := rest.relay(j.Ref); err != nil {
		gone := c.r.Context().Err() != nil
		if gone && rest.last.done {
			return nil // it has the whole answer, and clients hang up then
		}
		if gone || rest.size > serverless.MaxOutput {
			// The client is gone, so the job is cancelled.
			if _, e := c.Jobs.Cancel(context.WithoutCancel(c.r.Context()), c.owner, j.Ref); e != nil || gone {
				return e
			}
		}
		return rest.fail(err)
	}
	return nil
}

// openaiInput returns the input of the job. Without a body it has no openai_input.
func (c *call) openaiInput() (input []byte, streams bool, err error) {
	body, err := c.body(maxSyncBody)
	if err != nil {
		return nil, false, err
	}
	route, err := json.Marshal("/" + c.r.PathValue("route"))
	if err != nil {
		return nil, false, err
	}
	input = append([]byte(`{"openai_route":`), route...)
	if c.r.Method == http.MethodPost {
		var faults problem.Violations
		o, err := parse(body, strictEnvelope, &faults)
		if err != nil {
			return nil, false, err
		}
		if err := faults.Err(nil); err != nil {
			return nil, false, err
		}
		s := o.find("stream")
		streams = s != nil && s.value.Kind() == 't'
		input = append(input, `,"openai_input":`...)
		input = append(input, bytes.TrimSpace(body)...)
	}
	return append(input, '}'), streams, nil
}

// An openaiAnswer turns the chunks and the output of a job into an answer.
type openaiAnswer struct {
	*call
	streams bool
	begun   bool             // the header of the event stream was sent
	items   []jsontext.Value // chunks of an answer that is not a stream
	size    int              // bytes of items, serverless.MaxOutput at most
	last    lastEvent
}

// A lastEvent looks for the event that ends a stream of OpenAI's interface. A worker may yield it in parts.
type lastEvent struct {
	end  []byte // of what was sent
	done bool
}

const doneEvent = "data: [DONE]"

func (l *lastEvent) sent(b []byte) {
	l.end = append(l.end, b[max(len(b)-2*len(doneEvent), 0):]...)
	l.end = bytes.Clone(l.end[max(len(l.end)-2*len(doneEvent), 0):])
	before, found := bytes.CutSuffix(bytes.TrimRight(l.end, "\r\n"), []byte(doneEvent))
	l.done = found && (len(before) == 0 || before[len(before)-1] == '\n')
}

// errJob is a job that did not complete.
type errJob struct {
	status serverless.Status
	text   string
}

func (e *errJob) Error() string { return e.text }

// relay reads the job's stream to its end. For an event stream it forwards chunks as they come.
func (a *openaiAnswer) relay(ref serverless.Ref) error {
	ctx := a.r.Context()
	for {
		var end serverless.Status
		err := a.streamRoomy(ctx, a.id.User, ref, serverless.StreamQuery{}, func() int64 { return int64(a.size) }, func(p serverless.StreamPart) error {
			end = p.Status
			for _, it := range p.Items {
				if err := a.item(it); err != nil {
					return err
				}
			}
			if a.begun {
				defer a.out.hold.Release() // it is written
				return http.NewResponseController(a.w).Flush()
			}
			return nil
		})
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case end.Terminal():
			return a.end(ref)
		}
	}
}

// item handles one chunk: {"output": value}.
func (a *openaiAnswer) item(it []byte) error {
	o := (&object{faults: &problem.Violations{}}).nested("", it)
	out := o.find("output")
	if out == nil {
		return nil
	}
	if !a.streams {
		if a.size += len(out.value); a.size > serverless.MaxOutput {
			return &errJob{serverless.Failed, fmt.Sprintf("the answer is larger than %d bytes (20 MB)", serverless.MaxOutput)}
		}
		a.items = append(a.items, bytes.Clone(out.value))
		return nil
	}
	a.begin()
	b := event(out.value)
	_, err := a.w.Write(b)
	if err == nil {
		a.last.sent(b)
	}
	return err
}

// event returns a chunk as part of the event stream. A string is passed on as it is, and may be
// any part of the stream; any other value becomes an event.
func event(v jsontext.Value) []byte {
	if v.Kind() == '"' {
		return []byte(unquote(v))
	}
	b := append([]byte("data: "), v...)
	return append(b, "\n\n"...)
}

func (a *openaiAnswer) begin() {
	if a.begun {
		return
	}
	a.begun = true
	setEventStream(a.w.Header())
	a.w.WriteHeader(http.StatusOK)
}

// end answers with the result of the job.
func (a *openaiAnswer) end(ref serverless.Ref) error {
	j, err := a.fitted(a.Jobs.Get(a.r.Context(), a.id.User, ref))
	if err != nil {
		return err
	}
	if j.Status != serverless.Completed {
		text := j.ErrorText()
		if text == "" {
			text = "the job was " + strings.ToLower(j.Status.String())
		}
		return &errJob{j.Status, text}
	}
	if a.streams {
		if !a.begun { // a worker that does not stream: its result is the only event
			for _, v := range results(j.Output) {
				if err := a.item(append(append([]byte(`{"output":`), v...), '}')); err != nil {
					return err
				}
			}
			a.begin()
		}
		return nil
	}
	if len(a.items) == 0 {
		a.items = results(j.Output)
	}
	return a.whole()
}

// results returns the values of an output: the elements of a list, or the output itself.
func results(output []byte) []jsontext.Value {
	v := jsontext.Value(output)
	switch v.Kind() {
	case '[':
		o := &object{faults: &problem.Violations{}, members: []member{{name: "o", value: v}}}
		return o.list("o")
	case '{', '"':
		return []jsontext.Value{v}
	}
	return nil
}

// whole answers a request that does not stream: with the single value of the worker, or with
// all its text if it sent text in parts.
func (a *openaiAnswer) whole() error {
	if len(a.items) == 0 {
		return &errJob{serverless.Failed, "the worker gave no answer"}
	}
	body := []byte(a.items[0])
	if a.items[0].Kind() == '"' {
		body = nil
		for _, v := range a.items {
			if v.Kind() == '"' {
				body = append(body, unquote(v)...)
			}
		}
	}
	status := http.StatusOK
	if e := (&object{faults: &problem.Violations{}}); jsontext.Value(body).Kind() == '{' && jsontext.Value(body).IsValid() {
		if m := e.nested("", body).find("error"); m != nil && m.value.Kind() == '{' {
			status = errorStatus(m.value, http.StatusInternalServerError)
		}
	}
	writeBody(a.w, status, "application/json", body)
	return nil
}

// fail answers an error after the job was made. In the middle of a stream it is the last
// event.
func (a *openaiAnswer) fail(err error) error {
	var e *errJob
	if !errors.As(err, &e) {
		if !a.begun {
			return err
		}
		a.log.Error("openai stream failed", "err", err)
		e = &errJob{serverless.Failed, "internal error"}
	}
	status := openaiStatus(e.status)
	var body []byte
	if said := workerError(e.text); said != nil {
		status = errorStatus(said, status)
		body = append(append([]byte(`{"error":`), said...), '}')
	} else {
		body = openaiError(status, e.text)
	}
	if !a.begun {
		writeBody(a.w, status, "application/json", body)
		return nil
	}
	b := append([]byte("data: "), body...)
	_, werr := io.Copy(a.w, bytes.NewReader(append(b, "\n\n"...)))
	return werr
}

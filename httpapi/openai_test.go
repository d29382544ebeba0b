package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestEachEndOfAJobHasItsStatusOnTheOpenAIRoute(t *testing.T) {
	bubble(t, func(w *testAPI) {
		said := func(code string) string { return fmt.Sprintf(`{"error":{"message":"said so","code":%s}}`, code) }
		failed := func(code string) string {
			return fmt.Sprintf(`{"error":"{'message': 'said so', 'code': %s}"}`, code)
		}
		cancel := func(id string, _ sdkWorker) { w.want(200, "POST", "/v2/idle/cancel/"+id, "") }
		reports := func(body string) func(string, sdkWorker) {
			return func(id string, h sdkWorker) { h.report("job-done", id, body) }
		}
		lives := func(id string, h sdkWorker) { // longer than a job may
			for range 61 {
				advance(10 * time.Second)
				h.ping(id)
			}
		}
		for _, row := range []struct {
			name   string
			end    func(id string, h sdkWorker)
			status int
			kind   string
		}{
			{"completed", reports(`{"output":{"id":"x"}}`), 200, ""},
			{"failed", reports(`{"error":"no luck"}`), 500, "server_error"},
			{"cancelled", cancel, 409, "invalid_request_error"},
			{"timed out", lives, 504, "server_error"},
			{"failed with a code", reports(failed("404")), 404, ""},
			{"failed with the last code", reports(failed("599")), 599, ""},
			{"failed with a code that is no error", reports(failed("200")), 500, ""},
			{"failed with a code that is no status", reports(failed("99")), 500, ""},
			{"failed with a larger code", reports(failed("600")), 500, ""},
			{"failed with a huge code", reports(failed("99999999999999999999")), 500, ""},
			{"failed with a word", reports(failed("'context_length_exceeded'")), 500, ""},
			{"failed without a code", reports(failed("None")), 500, ""},
			{"an error as output", reports(`{"output":` + said("400") + `}`), 400, ""},
			{"an error as output, with a fraction", reports(`{"output":` + said("400.5") + `}`), 500, ""},
			{"an error as output, with a text", reports(`{"output":` + said(`"404"`) + `}`), 500, ""},
			{"an error as output, with no status", reports(`{"output":` + said("0") + `}`), 500, ""},
		} {
			got := make(chan answer)
			go func() { got <- w.call("POST", "/v2/idle/openai/v1/completions", `{"prompt":"a"}`) }()
			h := w.hand("w1")
			row.end(h.take(), h)
			a := <-got
			if a.status != row.status || !strings.Contains(a.body, row.kind) || (row.status >= 400 && !strings.Contains(a.body, `{"error":{"message":`)) {
				t.Errorf("%s: %d %s, want %d %s", row.name, a.status, a.body, row.status, row.kind)
			}
		}
	})
}

func TestADisconnectAfterTheLastEventOfAStreamCancelsNothing(t *testing.T) {
	bubble(t, func(w *testAPI) {
		for _, row := range []struct {
			name   string
			pieces []string
			want   string
		}{
			{"before it", []string{`"data: {}\n\n"`}, "CANCELLED"},
			{"after it", []string{`"data: {}\n\n"`, `"data: [DONE]\n\n"`}, "IN_PROGRESS"},
			{"after its parts", []string{`"data: {}\n\nda"`, `"ta: [DON"`, `"E]"`, `"\n\n"`}, "IN_PROGRESS"},
			{"after a text that has it", []string{`"data: {\"t\":\"data: [DONE]\"}\n\n"`}, "CANCELLED"},
			{"after more than it", []string{`"data: [DONE]\n\n"`, `"data: {}\n\n"`}, "CANCELLED"},
		} {
			ctx, hangUp := context.WithCancel(w.t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				res, err := handlerTransport{w.handler}.RoundTrip(w.request(ctx, "POST", "/v2/idle/openai/v1/completions", `{"stream":true}`))
				if err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
				}
			}()
			h := w.hand("w1")
			id := h.take()
			for _, piece := range row.pieces {
				h.report("job-stream", id, `{"output":`+piece+`}`)
				synctest.Wait()
			}
			hangUp()
			<-ended
			synctest.Wait()
			if a := w.statusOf(id); !strings.Contains(a.body, row.want) {
				t.Errorf("a disconnect %s: the job is %s, want %s", row.name, a.body, row.want)
			}
			h.report("job-done", id, `{"output":[]}`)
		}
	})
}

package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/suite"
)

func TestRequestsAreHeldForAsLongAsTheyAsk(t *testing.T) {
	bubble(t, func(w *testAPI) {
		id := w.want(200, "POST", "/v2/idle/run", `{"input":{}}`).field("id")
		for _, row := range []struct {
			method, target, body string
			want                 time.Duration
		}{
			{"POST", "/v2/idle/runsync?wait=1000", `{"input":{}}`, time.Second},
			{"POST", "/v2/idle/runsync", `{"input":{}}`, 90 * time.Second},
			{"POST", "/v2/idle/runsync?wait=300000", `{"input":{}}`, 300 * time.Second},
			{"GET", "/v2/idle/status/" + id, "", 0},
			{"GET", "/v2/idle/status-sync/" + id, "", 90 * time.Second},
			{"POST", "/v2/idle/status-sync/" + id + "?wait=1500", "", 1500 * time.Millisecond},
			{"GET", "/v2/idle/stream/" + id, "", 5 * time.Second},
			{"POST", "/v2/idle/stream/" + id + "?wait=7000", "", 7 * time.Second},
		} {
			began := time.Now()
			a := w.want(200, row.method, row.target, row.body)
			if d := time.Since(began); d != row.want {
				t.Errorf("%s %s is held for %v, want %v", row.method, row.target, d, row.want)
			}
			if got := a.field("status"); strings.HasPrefix(a.body, "{") && got != "IN_QUEUE" {
				t.Errorf("%s %s = %s, want the job as it is", row.method, row.target, a.body)
			}
		}
	})
}

func TestWaitEndsWithTheJob(t *testing.T) {
	bubble(t, func(w *testAPI) {
		began := time.Now()
		if a := w.want(200, "POST", "/v2/echo/runsync", `{"input":{"ms":1234}}`); a.field("status") != "COMPLETED" || time.Since(began) != 1234*time.Millisecond {
			t.Errorf("after %v: %s", time.Since(began), a.body)
		}
		id := w.want(200, "POST", "/v2/idle/run", `{"input":{}}`).field("id")
		for _, op := range []string{"status-sync", "stream"} {
			done := make(chan answer)
			go func() { done <- w.call("POST", "/v2/idle/"+op+"/"+id+"?wait=60000", "") }()
			advance(time.Second)
			w.want(200, "POST", "/v2/idle/cancel/"+id, "")
			synctest.Wait()
			select {
			case a := <-done:
				if a.field("status") != "CANCELLED" {
					t.Errorf("%s = %s, want CANCELLED", op, a.body)
				}
			default:
				t.Errorf("%s goes on after the job has ended", op)
				<-done
			}
		}
	})
}

func TestCallerThatLeavesCancelsNothing(t *testing.T) {
	bubble(t, func(w *testAPI) {
		ctx, leave := context.WithCancel(w.t.Context())
		left := make(chan struct{})
		go func() {
			defer close(left)
			res, err := handlerTransport{w.handler}.RoundTrip(w.request(ctx, "POST", "/v2/echo/runsync", `{"input":{"ms":10000}}`))
			if err == nil {
				_ = res.Body.Close()
			}
		}()
		advance(time.Second)
		leave()
		advance(time.Second)
		select {
		case <-left:
		default:
			t.Error("the request goes on after its caller has left")
		}
		advance(time.Minute / 2)
		var page struct {
			Requests []struct {
				Status string `json:"status"`
			} `json:"requests"`
		}
		a := w.want(200, "GET", "/v2/echo/requests", "")
		if err := json.Unmarshal([]byte(a.body), &page); err != nil || len(page.Requests) != 1 || page.Requests[0].Status != "COMPLETED" {
			t.Errorf("requests = %s, want one that has completed", a.body)
		}
	})
}

func TestSecretsOfAJobReachOnlyItsWorker(t *testing.T) {
	bubble(t, func(w *testAPI) {
		body := `{"input":{"do":"fail"},"s3Config":{"accessId":"hush-1","accessSecret":"hush-2","bucketName":"hush-3","endpointUrl":"http://hush-4","objectPath":"hush-5"}}`
		a := w.want(200, "POST", "/v2/echo/runsync", body)
		id := a.field("id")
		queued := w.want(200, "POST", "/v2/idle/run", body)
		for _, a := range []answer{
			a, queued,
			w.want(200, "GET", "/v2/echo/status/"+id, ""), w.want(200, "GET", "/v2/idle/status/"+queued.field("id"), ""),
			w.want(200, "GET", "/v2/echo/requests?full=true", ""), w.want(200, "GET", "/v2/idle/requests?full=true", ""),
			w.want(200, "GET", "/v2/echo/stream/"+id, ""), w.want(200, "POST", "/v2/echo/retry/"+id, ""),
			w.want(422, "POST", "/v2/idle/run", strings.Replace(body, `"http://hush-4"`, "4", 1)),
		} {
			if strings.Contains(a.body, "hush") || strings.Contains(a.body, "s3Config\":") {
				t.Errorf("an answer shows the credentials: %s", a.body)
			}
		}
	})
}

// A goneClient is a client that disconnects before it gets the answer.
type goneClient struct{ header http.Header }

func (l goneClient) Header() http.Header     { return l.header }
func (goneClient) WriteHeader(int)           {}
func (goneClient) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestItemsThatWereNotDeliveredAreHandedOutAgain(t *testing.T) {
	bubble(t, func(w *testAPI) {
		id := w.want(200, "POST", "/v2/echo/run", `{"input":{"do":"stream"}}`).field("id")
		advance(time.Second)
		r := w.request(w.t.Context(), "GET", "/v2/echo/stream/"+id, "")
		r.Body = http.NoBody
		w.handler.ServeHTTP(goneClient{http.Header{}}, r)
		a := w.want(200, "GET", "/v2/echo/stream/"+id, "")
		if want := `[{"output":{"n":0},"metrics":{}},{"output":{"n":1},"metrics":{}},{"output":{"n":2},"metrics":{}}]`; a.body != want {
			t.Errorf("the next reader gets %s\nwant %s", a.body, want)
		}
		if got := a.header.Get("Job-Status"); got != "IN_PROGRESS" {
			t.Errorf("Job-Status with the last items = %q, want IN_PROGRESS", got)
		}
		if a := w.want(200, "GET", "/v2/echo/stream/"+id, ""); a.body != "[]" || a.header.Get("Job-Status") != "COMPLETED" {
			t.Errorf("after the last item: %s, %q", a.body, a.header.Get("Job-Status"))
		}
	})
}

func TestOneAnswerOfAStreamIsAtMostAMegabyte(t *testing.T) {
	const most = 1 << 20
	for _, size := range []int{100, 600_000, 2_200_000} {
		bubble(t, func(w *testAPI) {
			input, err := json.Marshal(map[string]any{"do": "write", "size": size})
			if err != nil {
				t.Fatal(err)
			}
			id := w.want(200, "POST", "/v2/echo/run", `{"input":`+string(input)+`}`).field("id")
			advance(time.Second)
			var got strings.Builder
			for range 100 {
				a := w.want(200, "GET", "/v2/echo/stream/"+id+"?format=envelope", "")
				var part struct {
					Status string
					Stream []struct{ Output string }
				}
				if err := json.Unmarshal([]byte(a.body), &part); err != nil {
					t.Fatal(err)
				}
				if len(a.body) > most {
					t.Errorf("of strings of %d bytes an answer has %d", size, len(a.body))
				}
				for _, it := range part.Stream {
					got.WriteString(it.Output)
				}
				if part.Status == "COMPLETED" {
					break
				}
			}
			want := strings.Repeat("a", size) + strings.Repeat("b", size) + strings.Repeat("c", size)
			if got.String() != want {
				t.Errorf("strings of %d bytes come as %d bytes in all, want %d", size, got.Len(), len(want))
			}
		})
	}
}

func TestOneAnswerOfAStreamOfManyItemsIsAtMostAMegabyte(t *testing.T) {
	suite.SkipUnlessLong(t)
	const most, items = 1 << 20, 2500
	for _, format := range []string{"array", "envelope"} {
		bubble(t, func(w *testAPI) {
			h, id := w.hand("w1"), w.submit(`{}`)
			h.take()
			for range items {
				h.report("job-stream", id, `{"output":"`+strings.Repeat("x", 500)+`"}`)
			}
			got := 0
			for n := 1; n > 0; got += n {
				a := w.want(200, "GET", "/v2/idle/stream/"+id+"?format="+format, "")
				if n = strings.Count(a.body, `"output"`); len(a.body) > most {
					t.Errorf("as %s, an answer with %d items has %d bytes, want at most %d", format, n, len(a.body), most)
				}
			}
			if got != items {
				t.Errorf("as %s, %d items are handed out, want %d", format, got, items)
			}
		})
	}
}

func TestInputIsKeptByteForByte(t *testing.T) {
	for _, input := range []string{
		`{}`, `{ }`, "{\n\t\"a\" :\r1 }", `{"a":1.0,"b":1e400,"c":-0,"d":123456789012345678901234567890}`,
		`{"a":1,"a":2}`, `{"\u0061":"\/\u00e9é😀\ud83d\ude00"}`, `{"a":"` + strings.Repeat("x", 100_000) + `"}`,
		`{"<&>":"<script>\u2028"}`, `{"half a pair":"\ud800","\udc00":["\ud83dx"]}`,
	} {
		bubble(t, func(w *testAPI) {
			for _, body := range []string{`{"input":` + input + `}`, "\n {\"x\":[" + strings.Repeat("1,", 1000) + `1],"input" : ` + input + ` ,"y":null} `} {
				a := w.want(200, "POST", "/v2/echo/runsync", body)
				if !strings.Contains(a.body, `"output":`+input+`,"status":"COMPLETED"`) {
					t.Errorf("the input %s comes back in %s", short(input), short(a.body))
				}
			}
			if a := w.want(200, "GET", "/v2/echo/requests?full=true", ""); strings.Count(a.body, `"input":`+input) != 2 {
				t.Errorf("the input %s is not in %s", short(input), short(a.body))
			}
		})
	}
}

func TestBodiesThatNeedNoneAreNotRead(t *testing.T) {
	bubble(t, func(w *testAPI) {
		id := w.want(200, "POST", "/v2/idle/run", `{"input":{}}`).field("id")
		for _, body := range []string{"", "null", "{}", "not JSON", `{"a":`} {
			w.want(200, "POST", "/v2/idle/status/"+id, body)
			w.want(200, "POST", "/v2/idle/cancel/"+id, body, "Content-Type: application/x-www-form-urlencoded")
		}
		w.want(200, "POST", "/v2/idle/purge-queue", "null")
		r := w.request(w.t.Context(), "POST", "/v2/idle/cancel/"+id, "")
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(nil), failingReader{}))
		res, err := handlerTransport{w.handler}.RoundTrip(r)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Errorf("a cancel with a body that cannot be read = %v, %v", res, err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
	})
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("reset by peer") }

func TestPagesOfRequestsAreAllOfThemOnce(t *testing.T) {
	bubble(t, func(w *testAPI) {
		var want []string // newest first
		for range 7 {
			want = append([]string{w.want(200, "POST", "/v2/idle/run", `{"input":{}}`).field("id")}, want...)
			advance(time.Millisecond)
		}
		for limit := 1; limit <= 8; limit++ {
			var got []string
			for more := true; more; {
				var page struct {
					Requests []struct {
						ID string `json:"id"`
					} `json:"requests"`
					Total, Offset, Limit int
					HasMore              bool
				}
				a := w.want(200, "GET", fmt.Sprintf("/v2/idle/requests?limit=%d&offset=%d", limit, len(got)), "", "Authorization: "+aliceFree)
				if err := json.Unmarshal([]byte(a.body), &page); err != nil {
					t.Fatal(err)
				}
				if page.Total != len(want) || page.Offset != len(got) || page.Limit != limit || len(page.Requests) == 0 {
					t.Fatalf("limit %d, offset %d: %s", limit, len(got), a.body)
				}
				for _, r := range page.Requests {
					got = append(got, r.ID)
				}
				more = page.HasMore
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("in pages of %d (-want +got):\n%s", limit, diff)
			}
		}
	})
}

func TestFormOfAStreamIsTheOneItsReaderKnows(t *testing.T) {
	const asJSON = "Content-Type: application/json"
	for _, row := range []struct {
		method, query string
		headers       []string
		envelope      bool
	}{
		{"GET", "", nil, false},
		{"GET", "", []string{asJSON}, false},
		{"POST", "", nil, true},
		{"POST", "?format=array", nil, false},
		{"GET", "?format=envelope", nil, true},
		{"GET", "", []string{"User-Agent: runpod-go/1.0.0"}, true},
		{"GET", "", []string{"User-Agent: RunPod-Python-SDK/1.7"}, true},
		{"GET", "?format=array", []string{"User-Agent: runpod-go/1.0.0"}, false},
		{"GET", "", []string{"User-Agent: my-runpod-thing"}, false},
		{"GET", "", []string{"User-Agent: runpod"}, false},
		{"GET", "", []string{"User-Agent: python-requests/2", asJSON}, true},
		{"GET", "", []string{"User-Agent: python-requests/2"}, false},
		{"GET with a body", "", []string{"User-Agent: python-requests/2", asJSON}, false},
		{"GET", "", []string{"User-Agent: python-requests/2", "Content-Type: text/plain"}, false},
		{"GET", "", []string{"User-Agent: Python/3.12 aiohttp/3", asJSON}, true},
		{"GET", "", []string{"User-Agent: curl/8", asJSON}, false},
	} {
		bubble(t, func(w *testAPI) {
			id := w.want(200, "POST", "/v2/echo/runsync", `{"input":{}}`).field("id")
			method, body, _ := strings.Cut(row.method, " with ")
			a := w.want(200, method, "/v2/echo/stream/"+id+row.query, body, row.headers...)
			want := "[]"
			if row.envelope {
				want = `{"status":"COMPLETED","stream":[]}`
			}
			if a.body != want || a.header.Get("Job-Status") != "COMPLETED" {
				t.Errorf("%s%s %q = %s, want %s", row.method, row.query, row.headers, a.body, want)
			}
		})
	}
}

func TestNullIsAbsentInTheEnvelopeOfARun(t *testing.T) {
	bubble(t, func(w *testAPI) {
		for _, rest := range []string{
			`"webhook":null,"policy":null,"s3Config":null`, `"queue":{"startAfter":null,"retry":null,"key":null,"priority":null}`,
			`"policy":{}`, `"policy":{"more":1}`, `"s3Config":{}`, `"s3Config":{"accessId":null,"accessSecret":null,"bucketName":null,"endpointUrl":null}`,
			`"s3Config":{"objectPath":1}`, `"webhookV2":7,"templateId":"x"`, `"policy":{"ttl":1e4,"executionTimeout":5000.0}`,
		} {
			w.want(200, "POST", "/v2/idle/run", `{"input":{},`+rest+`}`)
		}
	})
}

func TestAFaultOfABodyIsNamedInOpenAIsForm(t *testing.T) {
	bubble(t, func(w *testAPI) {
		a := w.want(422, "POST", "/v2/echo/openai/v1/chat/completions", `[]`)
		if want := `{"error":{"message":"the body must be a JSON object","type":"invalid_request_error","param":null,"code":null}}`; a.body != want {
			t.Errorf("body = %s\nwant   %s", a.body, want)
		}
	})
}

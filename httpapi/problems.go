package httpapi

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit"
)

// WriteProblem answers a request with what problem.Of makes of err, so that a program's
// own middleware can answer like the handlers here. It does not log.
func WriteProblem(w http.ResponseWriter, err error) {
	writeProblem(w, problem.Of(err))
}

// write answers in the flavor of the area.
func (x *area) write(w http.ResponseWriter, err error) {
	d := problem.Of(err)
	if x.asOpenAI {
		text := d.Detail
		if len(d.Errors) > 0 { // it has no list for them
			text = strings.Join(d.Errors, "; ")
		}
		writeBody(w, d.Status, "application/json", openaiError(d.Status, text))
		return
	}
	if !x.errors {
		writeProblem(w, d)
		return
	}
	writeProblem(w, struct {
		problem.Document
		Error string `json:"error"`
	}{d, d.Detail})
}

func writeProblem(w http.ResponseWriter, doc any) {
	status := http.StatusInternalServerError
	b, err := json.Marshal(doc)
	if err == nil {
		var d problem.Document
		if json.Unmarshal(b, &d) == nil {
			status = d.Status
		}
	}
	writeBody(w, status, "application/problem+json", b)
}

// writeJSON answers 200, or another success.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	writeBody(w, status, "application/json", b)
	return nil
}

func writeBody(w http.ResponseWriter, status int, mediaType string, b []byte) {
	h, v := w.Header(), [...]string{mediaType, strconv.Itoa(len(b)), "no-store", "nosniff"}
	// Set would allocate for each.
	h["Content-Type"], h["Content-Length"] = v[0:1:1], v[1:2:2]
	h["Cache-Control"], h["X-Content-Type-Options"] = v[2:3:3], v[3:4:4]
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client is gone: there is nobody to tell
}

// setLimits writes the headers of section 7.
func setLimits(h http.Header, d ratelimit.Decision) {
	if len(d.States) > 0 {
		h.Set("RateLimit", d.RateLimit())
		h.Set("RateLimit-Policy", d.RateLimitPolicy())
	}
	if !d.OK {
		h.Set("Retry-After", strconv.Itoa(d.RetryAfter))
	}
}

func limited(d ratelimit.Decision) error {
	return problem.New(problem.Limited, d.Detail)
}

package console

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/serverless"
)

// tailEvery is the least time between two events of a tail.
const tailEvery = 500 * time.Millisecond

// A tailBody is what an event of a tail has.
type tailBody struct {
	Run    uint32   `json:"run"`   // of the job: a retry begins a new stream
	First  uint32   `json:"first"` // number of the first item; those before it that were not sent have been read by others
	Items  [][]byte `json:"items"` // base64: they are shown as their bytes came
	Chunks uint32   `json:"chunks"`
	Status string   `json:"status"`
}

// tail serves the stream of a job as events. It looks only: the items stay for the reader. The event
// "items" has new ones, "end" says that the job has ended, and "out" that the session has. A browser
// that comes back gets what is after the event that it had last, or after the id in the query.
func (c *Console) tail(w http.ResponseWriter, r *http.Request, s *session) {
	if c.HidePayloads {
		refuse(w, errHidden)
		return
	}
	j := c.job(w, r, s)
	if j == nil {
		return
	}
	leave, ok := c.enter(w, r, s)
	if !ok {
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	t := &tailer{viewer: viewer{Console: c, w: w, r: r, s: s}, job: j, run: j.Run}
	t.resume(cmp.Or(r.Header.Get("Last-Event-Id"), r.URL.Query().Get("after")))
	rc := http.NewResponseController(w)
	for t.tick() && rc.Flush() == nil {
		select {
		case <-time.After(tailEvery):
		case <-r.Context().Done():
			return
		}
	}
	_ = rc.Flush() // the client may be gone
}

// A tailer is a tab that looks at the stream of a job.
type tailer struct {
	viewer

	job  *serverless.Job
	run  uint32
	next uint32 // the item to send next
	sent bool   // something was sent: the page knows that the stream is there
}

// resume goes on after an event with this id.
func (t *tailer) resume(id string) {
	run, next, _ := strings.Cut(id, "-")
	if n, err := strconv.ParseUint(run, 10, 32); err != nil || uint32(n) != t.run {
		return
	}
	if n, err := strconv.ParseUint(next, 10, 32); err == nil {
		t.next = uint32(n)
	}
}

// tick sends what there is. It reports whether the stream goes on.
func (t *tailer) tick() bool {
	if t.out() {
		t.event("out", []byte("{}"))
		return false
	}
	part, first, err := t.Jobs.Peek(t.r.Context(), t.job.Owner, t.job.Ref, t.next, serverless.StreamQuery{Wait: overEvery})
	if err != nil {
		t.event("end", []byte(`{"status":"GONE"}`))
		return false
	}
	b := tailBody{Run: part.Job.Run, First: first, Items: part.Items, Chunks: part.Job.Chunks, Status: part.Status.String()}
	t.run, t.next = b.Run, first+uint32(len(b.Items))
	name := "items"
	if len(b.Items) == 0 && part.Status.Terminal() {
		name = "end"
	}
	if len(b.Items) == 0 && name == "items" && t.sent {
		return t.quiet()
	}
	t.sent = true
	data, err := json.Marshal(b)
	if err != nil {
		return false
	}
	if _, err := fmt.Fprintf(t.w, "id: %d-%d\n", t.run, t.next); err != nil {
		return false
	}
	return t.event(name, data) && name == "items"
}

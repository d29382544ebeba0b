package console

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/serverless"
)

const (
	tailEvery = 500 * time.Millisecond // the least time between two events of a tail
	tailWait  = 2 * time.Second        // for an item. The key is looked at afterwards
)

// A tailBody is what an event of a tail has.
type tailBody struct {
	Run    uint32   `json:"run"`   // of the job: a retry begins a new stream
	First  uint32   `json:"first"` // number of the first item; those before it that were not sent have been read by others
	Items  [][]byte `json:"items"` // base64: they are shown as their bytes came. Never null
	Chunks uint32   `json:"chunks"`
	Status string   `json:"status"`
}

// tail serves the stream of a job as events. It looks only: the items stay for the reader. The event
// "items" has new ones, "end" says that the job has ended, and "out" that the session has. A browser
// that comes back gets what is after the event that it had last, or after the id in the query.
func (c *Console) tail(w *httpapi.Answer, r *http.Request, s *session) {
	if c.HidePayloads {
		refuse(w, errHidden)
		return
	}
	j := c.job(w, r, s)
	if j == nil {
		return
	}
	reads := httpapi.Permission{Area: "endpoint", Endpoint: j.Endpoint, Level: httpapi.Read} // as the operation status needs it
	c.watch(w, r, s, func(id httpapi.Identity) bool { return id.Can(reads) }, func(v *viewer) {
		t := &tailer{viewer: v, job: j, run: j.Run}
		t.resume(cmp.Or(r.Header.Get("Last-Event-Id"), r.URL.Query().Get("after")))
		for t.tick() && v.flush() {
			select {
			case <-time.After(tailEvery):
			case <-r.Context().Done():
				return
			}
		}
	})
}

// A tailer is a tab that looks at the stream of a job.
type tailer struct {
	*viewer

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
	part, first, err := t.Jobs.Peek(t.r.Context(), t.job.Owner, t.job.Ref, t.next, serverless.StreamQuery{Wait: tailWait})
	if err != nil {
		t.event("end", "", []byte(`{"status":"GONE"}`))
		return false
	}
	b := tailBody{Run: part.Job.Run, First: first, Items: append([][]byte{}, part.Items...), Chunks: part.Job.Chunks, Status: part.Status.String()}
	t.run, t.next = b.Run, first+uint32(len(b.Items))
	name := "items"
	if len(b.Items) == 0 && part.Status.Terminal() {
		name = "end"
	}
	if len(b.Items) == 0 && name == "items" && t.sent {
		return t.quiet()
	}
	t.sent = true
	if t.w.Room(t.r.Context(), 4*size(b.Items)) != nil { // for the items and two copies in base64
		return false
	}
	data, err := json.Marshal(b)
	if err != nil {
		return false
	}
	return t.event(name, fmt.Sprintf("%d-%d", t.run, t.next), data) && name == "items"
}

func size(items [][]byte) (n int64) {
	for _, b := range items {
		n += int64(len(b))
	}
	return n
}

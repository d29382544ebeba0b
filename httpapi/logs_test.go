package httpapi_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const loggingPod = `{"name":"p","image":"talks","cpu":{"id":"cpu3c","vcpuCount":2}}`

// events returns the events of a stream without comments.
func events(a answer) (list []string) {
	for e := range strings.SplitSeq(a.body, "\n\n") {
		if strings.HasPrefix(e, "id: ") {
			list = append(list, e)
		}
	}
	return list
}

func idOf(event string) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(event, "id: "), "\n")
	return id
}

func TestLogThatIsResumedAtAnyLineMissesNothing(t *testing.T) {
	bubble(t, func(w *testAPI) {
		id := w.want(201, "POST", "/v2/pods", loggingPod).field("id")
		advance(10 * time.Second)
		target := "/v2/pods/" + id + "/logs"
		all := events(w.listen(time.Second, target))
		if len(all) < 8 {
			t.Fatalf("the log has %d lines: %q", len(all), all)
		}
		for i, e := range all {
			for _, header := range []bool{true, false} {
				var a answer
				if header {
					a = w.listen(time.Second, target, "Last-Event-ID: "+idOf(e))
				} else {
					a = w.listen(time.Second, target+"?since="+idOf(e))
				}
				got := events(a)
				for _, want := range all[i+1:] {
					if !slices.Contains(got, want) {
						t.Errorf("resumed after %q, the stream misses %q", idOf(e), want)
					}
				}
				if slices.Contains(got, e) {
					t.Errorf("resumed after %q, the stream repeats it", idOf(e))
				}
				slices.Sort(got)
				if len(slices.Compact(got)) != len(got) {
					t.Errorf("resumed after %q, the stream has a line twice", idOf(e))
				}
			}
		}
	})
}

func TestTailIsTheLastLinesOfBothSources(t *testing.T) {
	bubble(t, func(w *testAPI) {
		id := w.want(201, "POST", "/v2/pods", loggingPod).field("id")
		advance(10 * time.Second)
		target := "/v2/pods/" + id + "/logs"
		all := events(w.listen(time.Second, target))
		for n := range len(all) + 2 {
			got := events(w.listen(time.Second, target+"?tail="+string(rune('0'+n))))
			if diff := cmp.Diff(all[max(len(all)-n, 0):], got); diff != "" && len(got)+n > 0 {
				t.Errorf("tail=%d (-want +got):\n%s", n, diff)
			}
		}
	})
}

func TestLogEndsWithItsPod(t *testing.T) {
	bubble(t, func(w *testAPI) {
		id := w.want(201, "POST", "/v2/pods", gpuPod).field("id")
		advance(10 * time.Second)
		began := time.Now()
		ended := make(chan time.Duration)
		for _, query := range []string{"", "?source=container", "?source=system", "?since=2000-01-01T00:00:00Z", "?tail=0"} {
			go func() {
				w.listen(time.Hour, "/v2/pods/"+id+"/logs"+query)
				ended <- time.Since(began)
			}()
		}
		advance(time.Minute)
		w.want(204, "DELETE", "/v2/pods/"+id, "")
		for range 5 {
			if d := <-ended; d > time.Minute+5*time.Second {
				t.Errorf("a log ends %v after the request; its pod was terminated after a minute", d)
			}
		}
	})
}

func TestQuietLogSaysThatItLives(t *testing.T) {
	bubble(t, func(w *testAPI) {
		id := w.want(201, "POST", "/v2/pods", gpuPod).field("id")
		advance(10 * time.Second)
		a := w.listen(50*time.Second, "/v2/pods/"+id+"/logs?tail=0")
		if got, want := a.body, strings.Repeat(": still here\n\n", 3); got != want {
			t.Errorf("a quiet log is %q, want %q", got, want)
		}
	})
}

func TestHeadOfALogIsAnsweredAtOnceAndWithoutItsLines(t *testing.T) {
	bubble(t, func(w *testAPI) {
		id := w.want(201, "POST", "/v2/pods", loggingPod).field("id")
		advance(10 * time.Second)
		for _, query := range []string{"", "?tail=0", "?since=2000-01-01T00:00:00Z"} {
			began := time.Now()
			a := w.want(200, "HEAD", "/v2/pods/"+id+"/logs"+query, "")
			if took := time.Since(began); took > 0 || a.body != "" || a.header.Get("Content-Type") != "text/event-stream" {
				t.Errorf("HEAD of a log%s = %q of type %q after %v, want a stream's headers at once", query, a.body, a.header.Get("Content-Type"), took)
			}
		}
		w.want(422, "HEAD", "/v2/pods/"+id+"/logs?tail=x", "")
	})
}

package client

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRetryAfterIsSecondsOrADate(t *testing.T) {
	const date = "Sun, 06 Nov 1994 08:49:37 GMT"
	for value, want := range map[string]time.Duration{
		"7": 7 * time.Second, "0": 0, "-3": 0, "": 0, "soon": 0, "1.5": 0, "99999999999": 1 << 31 * time.Second,
		"Sun, 06 Nov 1994 08:50:07 GMT": 30 * time.Second, "Sunday, 06-Nov-94 08:50:07 GMT": 30 * time.Second, "Sun, 06 Nov 1994 08:00:00 GMT": 0,
	} {
		if got := retryAfter(value, date); got != want {
			t.Errorf("retryAfter(%q) = %v, want %v", value, got, want)
		}
	}
}

func TestNextPageIsFoundInEveryFormOfTheHeader(t *testing.T) {
	from, err := url.Parse("https://pods.example.com/base/v2/pods?limit=2")
	if err != nil {
		t.Fatal(err)
	}
	for link, want := range map[string]string{
		`<?limit=2&cursor=b>; rel="next"`:                      "https://pods.example.com/base/v2/pods?limit=2&cursor=b",
		`</base/v2/pods?cursor=b>;rel="next"`:                  "https://pods.example.com/base/v2/pods?cursor=b",
		`</x>; rel="prev", <?cursor=c>; title="n"; rel="next"`: "https://pods.example.com/base/v2/pods?cursor=c",
		`</x>; rel="prev"`:                                     "", "": "",
	} {
		u, err := nextPage(from, http.Header{"Link": {link}})
		if got := ""; err != nil || u != nil && u.String() != want || u == nil && got != want {
			t.Errorf("nextPage(%s) = %v, %v, want %q", link, u, err, want)
		}
	}
	if _, err := nextPage(from, http.Header{"Link": {`<http://pods.example.com/v2/pods>; rel="next"`}}); err == nil {
		t.Error("a page without TLS is followed")
	}
}

func TestEventsAreReadAsTheStandardSays(t *testing.T) {
	const stream = "\ufeff: a comment\n\nid: 1\nevent: x\ndata: a\ndata:b\ndata\n\nretry: 500\n\nid: 2\ndata:  c\r\n\nother: z\n\ndata: cut off"
	var got []string
	for m := range messages(strings.NewReader(stream), func() {}) {
		got = append(got, m.id+"|"+m.kind+"|"+string(m.data)+"|"+m.retry.String())
	}
	if diff := cmp.Diff([]string{"1|x|a\nb\n|0s", "|||500ms", "2|| c|0s"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestQueueOfAJobIsWrittenAsTheInterfaceHasIt(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, q := range map[string]JobQueue{
		`{}`: {},
		`{"priority":0,"key":"k","startAfter":1500}`: {Priority: new(0), Key: "k", StartAfter: Millis(1500 * time.Millisecond)},
		`{"retry":{"attempts":3,"delay":1000,"jitter":0},"startAfter":"2026-01-02T03:04:05Z"}`: {
			StartAfter: 1, StartAt: at, Retry: &JobRetry{Attempts: 3, Delay: Millis(time.Second), Jitter: new(0.0)},
		},
	} {
		if b, err := json.Marshal(q); err != nil || string(b) != want {
			t.Errorf("%s, %v, want %s", b, err, want)
		}
	}
}

// Whatever a server sends as events, reading ends, and no event is longer than its stream.
func FuzzEvents(f *testing.F) {
	f.Add("id: 1\ndata: a\n\n")
	f.Add("data\ndata:\n\nretry: x\n\n")
	f.Fuzz(func(t *testing.T, stream string) {
		n := 0
		for m := range messages(strings.NewReader(stream), func() {}) {
			n += len(m.data)
		}
		if n > len(stream)+strings.Count(stream, "\n") {
			t.Errorf("%d bytes of data in a stream of %d", n, len(stream))
		}
	})
}

package httpapi

import (
	"context"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

// until accepts a key until an instant.
type until time.Time

func (u until) Authenticate(context.Context, string) (Identity, error) {
	if !time.Now().Before(time.Time(u)) {
		return Identity{}, ErrKey
	}
	return Identity{User: "alice", Scopes: []Permission{{Area: "pods", Level: Read}}}, nil
}

// Also while the lines of the past are sent, which a slow reader makes long, the key is looked at.
func TestThePastOfALogEndsSoonAfterItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v2/pods/p/logs", http.NoBody)
		r.Header.Set("Authorization", "Bearer k")
		c := &call{
			router: newAPI(Services{}, &Options{Auth: until(began.Add(time.Minute))}).router(APIControl),
			op:     &operation{need: Permission{Area: "pods", Level: Read}},
			w:      httptest.NewRecorder(), r: r, id: Identity{User: "alice"},
		}
		goesOn := c.sendPast(func(yield func(logLine) bool) {
			for time.Since(began) < time.Hour && yield(logLine{pods.LogLine{Text: "line"}, pods.ContainerLog}) {
				time.Sleep(100 * time.Millisecond) // as a slow reader makes it
			}
		})
		if took := time.Since(began); goesOn || took < time.Minute || took > time.Minute+3*time.Second {
			t.Errorf("the past goes on: %v, after %v; want that it ends within 3 s of its key, after a minute", goesOn, took)
		}
	})
}

// The followers of a log may not have been told yet of what the end of the server has done to a pod.
func TestAServerThatEndsSendsTheRestOfALog(t *testing.T) {
	for name, c := range map[string]struct {
		cause error
		want  []string
	}{
		"the server ends":    {problem.New(problem.Unavailable, "the server is stopping"), []string{"one", "two", "server stopped"}},
		"the client is gone": {nil, []string{"one", "two"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { restOfALog(t, c.cause, c.want) })
		})
	}
}

func restOfALog(t *testing.T, cause error, want []string) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	rec := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v2/pods/p/logs?source=system", http.NoBody)
	r.Header.Set("Authorization", "Bearer k")
	c := &call{
		router: newAPI(Services{}, &Options{Auth: until(time.Now().Add(time.Hour))}).router(APIControl),
		op:     &operation{need: Permission{Area: "pods", Level: Read}},
		w:      rec, r: r, id: Identity{User: "alice"},
	}
	lines := []string{"one", "two"}
	read := func(ctx context.Context, _ pods.LogSource, q pods.LogQuery) (iter.Seq2[pods.LogLine, error], error) {
		return func(yield func(pods.LogLine, error) bool) {
			for i := int(q.AfterSeq); i < len(lines); i++ {
				if !yield(pods.LogLine{Seq: uint64(i + 1), Text: lines[i]}, nil) {
					return
				}
			}
			if q.Follow {
				<-ctx.Done()
			}
		}, nil
	}
	done := make(chan error)
	go func() { done <- c.streamLog(read) }()
	synctest.Wait()
	lines = append(lines, "server stopped")
	cancel(cause)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range strings.Split(rec.Body.String(), `"line":"`)[1:] {
		line, _, _ := strings.Cut(e, `"`)
		got = append(got, line)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

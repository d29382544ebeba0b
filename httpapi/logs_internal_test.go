package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/pods"
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

package httpapi_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/podyard/podyard/ratelimit/budget"
)

// took returns how long n requests take that are answered with a status. Their keys begin with name.
func (w *testAPI) took(name string, n, want int, key string) time.Duration {
	w.t.Helper()
	began := time.Now()
	for i := range n {
		w.want(want, "POST", "/v2/idle/run", `{"input":{}}`, "Authorization: Bearer "+key, fmt.Sprintf("Idempotency-Key: %s-%d", name, i))
	}
	return time.Since(began)
}

func TestRefusalsOfAFloodAreDelayedAndNothingElse(t *testing.T) {
	limits := limitedTo(budget.Limits{IdempotencyKeys: 5}, budget.Totals{})
	bubbleWith(t, limits, func(w *testAPI) {
		if d := w.took("a", 5, 200, aliceKey) + w.took("b", 20, 429, aliceKey); d != 0 {
			w.t.Errorf("20 refusals in a second take %v, want nothing", d)
		}
		if d := w.took("c", 10, 429, aliceKey); d != 275*time.Millisecond {
			w.t.Errorf("the next 10 take %v, want 5 ms and 5 ms more each", d)
		}
		if d := w.took("d", 5, 200, bobKey) + w.took("e", 20, 429, bobKey) + w.took("f", 100, 200, aliceFree); d != 0 {
			w.t.Errorf("another user and an exempt key wait for %v", d)
		}
		if d := w.took("g", 20, 401, "wrong"); d != 0 {
			w.t.Errorf("20 wrong keys take %v", d)
		}
		if d := w.took("h", 10, 401, "wrong"); d != 275*time.Millisecond {
			w.t.Errorf("the next 10 take %v", d)
		}
		time.Sleep(time.Second)
		if d := w.took("i", 20, 429, aliceKey); d != 0 {
			w.t.Errorf("20 refusals a second later take %v", d)
		}
	})
}

func TestWithoutLimitsNoRefusalIsDelayed(t *testing.T) {
	bubble(t, func(w *testAPI) {
		if d := w.took("j", 100, 401, "wrong"); d != 0 {
			w.t.Errorf("100 wrong keys take %v", d)
		}
	})
}

package browser

import (
	"encoding/json"
	"strings"
	"testing"
)

// The page of a queue shows its rates and changes them, and the page that says why jobs wait names them.
func TestRatesOfAQueueAreShownAndChanged(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	w.call("PATCH", "/v2/serverless/echo/queue", `{"rate":{"limit":1,"per":3600000},"keys":{"gpu":{"perKey":2}}}`)
	for range 3 {
		w.submit("echo", `{"input":{}}`)
	}
	b.signIn(w, adminKey)
	b.goes(w, "e/echo/why")
	b.sees("2 jobs are held by the limits and rates of the queue (rate: 1 start in 1 h; keys: 1 key has limits of its own).")
	b.goes(w, "e/echo/queue")
	b.sees("rate: 1 start in 1 h")
	b.wantAccessible("queue-rates")
	b.fill("input[name='perUserRate.limit']", "5")
	b.press("Change")
	b.sees("perUserRate: 5 starts in 1 min")
	b.fill("input[name=key]", "tenant-7")
	b.fill("input[name='keys.limit']", "3")
	b.press("Set")
	b.sees("The limits of the key tenant-7 were set.")
	b.sees("3 starts in 1 min")
	b.press("Remove…")
	b.press("Remove")
	b.until(`!document.querySelector('dialog') && document.querySelectorAll('section[aria-labelledby=queue] tbody tr').length === 1`)
	var q struct {
		Rate, PerUserRate *struct{ Limit, Per int }
		Keys              map[string]any
	}
	got := w.call("GET", "/v2/serverless/echo/queue", "")
	check(t, json.Unmarshal(got, &q))
	if q.Rate == nil || q.Rate.Per != 3600000 || q.PerUserRate == nil || q.PerUserRate.Limit != 5 || q.PerUserRate.Per != 60000 || len(q.Keys) != 1 || !strings.Contains(string(got), "tenant-7") {
		t.Errorf("the queue has %s", got)
	}
	b.wantNoFaults()
}

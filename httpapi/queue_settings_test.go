package httpapi_test

import (
	"strings"
	"testing"
)

// The owner of an endpoint and an operator change the settings of its queue, and a body changes
// what it has.
func TestQueueSettingsAreChangedByTheirOwner(t *testing.T) {
	withEndpoints(t, nil, func(w *testAPI) {
		alice, operator := as(alicesEndpoints), as(operatorFree)
		path := "/v2/serverless/" + w.want(201, "POST", "/v2/serverless", cpuEndpoint, alice).field("id") + "/queue"
		const counts = `,"ready":0,"delayed":0,"blocked":0`
		const noRates = `,"rate":null,"perKeyRate":null,"perUserRate":null,"keys":{}}`
		const rates = `,"rate":{"limit":100,"per":60000},"perKeyRate":{"limit":5,"per":1000},"perUserRate":{"limit":1000000,"per":2592000000},"keys":{"a/b":{"perKey":2,"rate":{"limit":1,"per":3600000}},"c":{"perKey":1,"rate":null}}}`
		none := `{"perKey":null,"perUser":null,"total":null,"ageing":60000,"retry":null,"deadLetter":0,"retain":null,"paused":false` + counts + noRates
		for _, c := range []struct{ body, want, key string }{
			{`{}`, none, alice},
			{`{"perKey":1,"perUser":2,"total":3,"ageing":0,"deadLetter":2592000000,"retain":2592000000,"paused":true,"retry":{"attempts":5,"factor":1.5}}`,
				`{"perKey":1,"perUser":2,"total":3,"ageing":0,"retry":{"attempts":5,"delay":1000,"factor":1.5,"maxDelay":300000,"jitter":0.5,"timeouts":false},"deadLetter":2592000000,"retain":2592000000,"paused":true` + counts + noRates, alice},
			{`{"perUser":null,"paused":false,"retry":{"attempts":1}}`,
				`{"perKey":1,"perUser":null,"total":3,"ageing":0,"retry":null,"deadLetter":2592000000,"retain":2592000000,"paused":false` + counts + noRates, operator},
			{`{"perKey":null,"total":null,"ageing":null,"deadLetter":null,"retain":null,"retry":null}`, none, alice},
			{`{"rate":{"limit":100,"per":60000},"perKeyRate":{"limit":5,"per":1000},"perUserRate":{"limit":1000000,"per":2592000000},"keys":{"a/b":{"perKey":2,"rate":{"limit":1,"per":3600000}},"c":{"perKey":1}}}`,
				strings.Replace(none, noRates, rates, 1), alice},
			{`{"keys":{"c":null,"d":null,"e":{"perKey":9}}}`, strings.Replace(none, noRates, strings.Replace(rates, `"c":{"perKey":1,"rate":null}`, `"e":{"perKey":9,"rate":null}`, 1), 1), operator},
			{`{"rate":null,"perKeyRate":null,"perUserRate":null,"keys":null}`, none, alice},
		} {
			if got := w.want(200, "PATCH", path, c.body, c.key).body; got != c.want {
				t.Errorf("PATCH %s\n got %s\nwant %s", c.body, got, c.want)
			}
			if got := w.want(200, "GET", path, "", c.key).body; got != c.want {
				t.Errorf("GET after PATCH %s\n got %s\nwant %s", c.body, got, c.want)
			}
		}
	})
}

// The counts are of jobs that could start now, that are not ready yet, and that the settings hold.
func TestQueueSettingsCountWhatCouldStart(t *testing.T) {
	withEndpoints(t, nil, func(w *testAPI) {
		operator := as(operatorFree)
		w.want(200, "PATCH", "/v2/serverless/idle/queue", `{"perKey":1}`, operator)
		for _, body := range []string{`{"input":{},"queue":{"key":"a"}}`, `{"input":{},"queue":{"key":"a"}}`, `{"input":{},"queue":{"startAfter":60000}}`} {
			w.want(200, "POST", "/v2/idle/run", body, as(alicesEndpoints))
		}
		const want = `{"perKey":1,"perUser":null,"total":null,"ageing":60000,"retry":null,"deadLetter":0,"retain":null,"paused":false,"ready":1,"delayed":1,"blocked":1,"rate":null,"perKeyRate":null,"perUserRate":null,"keys":{}}`
		if got := w.want(200, "GET", "/v2/serverless/idle/queue", "", operator).body; got != want {
			t.Errorf("the queue is\n%s, want\n%s", got, want)
		}
	})
}

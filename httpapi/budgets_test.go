package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/podyard/podyard/ratelimit/budget"
)

// fullRequests are requests that need one more of a budget than there is.
var fullRequests = []struct {
	budget        budget.Budget
	request, body string
	waits         string // Retry-After
}{
	{budget.Volumes, "POST /v2/network-volumes", `{"name":"v","size":10,"dataCenter":"US-KS-2"}`, ""},
	{budget.Templates, "POST /v2/templates", `{"name":"t","image":"i","category":"CPU"}`, ""},
	{budget.Registries, "POST /v2/registries", `{"name":"s","username":"u","password":"p"}`, ""},
	{budget.Endpoints, "POST /v2/serverless", `{"name":"f","type":"QUEUE","image":"i","cpu":[{"id":"cpu3c","vcpuCount":2}],"scaling":{"type":"QUEUE_DELAY","queueDelay":4}}`, ""},
	{budget.Pods, "POST /v2/pods", `{"name":"p","image":"i","cpu":{"id":"cpu3c","vcpuCount":2}}`, ""},
	{budget.Keys, "POST /v2/account/keys", `{"scopes":["pods:read"]}`, ""},
	{budget.SSHKeys, "PUT /v2/account/ssh-keys", `{"keys":["ssh-ed25519 AAAA a","ssh-ed25519 BBBB b"]}`, ""},
	{budget.SecretBytes, "POST /v2/account/secrets", `{"name":"s","value":"v"}`, ""},
	{budget.PodEnvBytes, "POST /v2/pods", `{"name":"p","image":"i","cpu":{"id":"cpu3c","vcpuCount":2},"env":{"A":"bc"}}`, ""},
	{budget.EndpointEnvBytes, "POST /v2/serverless", `{"name":"f","type":"QUEUE","image":"i","cpu":[{"id":"cpu3c","vcpuCount":2}],"env":{"A":"bc"},"scaling":{"type":"QUEUE_DELAY","queueDelay":4}}`, ""},
	{budget.TemplateEnvBytes, "POST /v2/templates", `{"name":"t","image":"i","category":"CPU","env":{"A":"bc"}}`, ""},
	{budget.Jobs, "POST /v2/idle/run", `{"input":{}}`, "30"},
	{budget.QueuedJobs, "POST /v2/idle/run", `{"input":{}}`, "5"},
	{budget.JobBytes, "POST /v2/idle/run", `{"input":{"a":1}}`, "30"},
}

// A request that is over a budget is a 429 that says what is full, how full and what makes room,
// and changes nothing. Other users go on.
func TestAFullBudgetIsA429ThatSaysWhatMakesRoomAndChangesNothing(t *testing.T) {
	for _, c := range fullRequests {
		bubble(t, func(w *testAPI) {
			as := "Authorization: Bearer " + adminFree
			method, path, _ := strings.Cut(c.request, " ")
			if c.budget != budget.SSHKeys && c.budget != budget.SecretBytes { // which are replaced as a whole, or have names that are unique
				w.call(method, path, c.body, as)
			}
			used := limitOf(t, w, as, c.budget).Used
			full := budget.Limits{}
			setLimit(&full, c.budget, max(used, 1))
			w.budgets.Replace(budget.Users{Named: map[string]budget.Limits{"admin": full}})

			a := w.call(method, path, c.body, as)
			if a.status != 429 || a.header.Get("Retry-After") != c.waits {
				t.Fatalf("%s: %s: %d with Retry-After %q, want 429 with %q: %s", c.budget, c.request, a.status, a.header.Get("Retry-After"), c.waits, a.body)
			}
			detail := a.field("detail")
			if row := c.budget.Row(); !strings.HasPrefix(detail, "the budget "+row.Name+" is full: ") || !strings.HasSuffix(detail, row.Frees) {
				t.Errorf("%s: %q", c.budget, detail)
			}
			if now := limitOf(t, w, as, c.budget); now.Used != used || now.Limit == nil || *now.Remaining != max(used, 1)-used {
				t.Errorf("%s: %+v after the refusal, want %d used", c.budget, now, used)
			}
			if strings.HasPrefix(path, "/v2/idle/") {
				w.want(200, method, path, c.body, "Authorization: Bearer "+bobKey)
			}
		})
	}
}

type limitOnTheWire struct {
	Name             string
	Limit, Remaining *int64
	Used             int64
}

// limitOf returns a budget of the user of a key.
func limitOf(t *testing.T, w *testAPI, as string, b budget.Budget) limitOnTheWire {
	t.Helper()
	for _, l := range limitsOf(t, w, "", as)[""] {
		if l.Name == b.Row().Name {
			return l
		}
	}
	t.Fatalf("there is no budget %s", b)
	return limitOnTheWire{}
}

// limitsOf returns the budgets by user; those of the first one are also under "".
func limitsOf(t *testing.T, w *testAPI, query, as string) map[string][]limitOnTheWire {
	t.Helper()
	var out struct {
		Users []struct {
			User   string
			Limits []limitOnTheWire
		}
	}
	if err := json.Unmarshal([]byte(w.want(200, "GET", "/v2/account/limits"+query, "", as).body), &out); err != nil {
		t.Fatal(err)
	}
	all := map[string][]limitOnTheWire{}
	for i, u := range out.Users {
		all[u.User] = u.Limits
		if i == 0 {
			all[""] = u.Limits
		}
	}
	return all
}

// setLimit sets a limit by its name, as a configuration does.
func setLimit(l *budget.Limits, b budget.Budget, n int64) {
	if err := json.Unmarshal(fmt.Appendf(nil, `{%q:%d}`, b.Row().Name, n), l); err != nil {
		panic(err)
	}
}

func TestAnOperatorSeesWhatUsersHoldAndTheLargestFirst(t *testing.T) {
	bubble(t, func(w *testAPI) {
		alice, bob, root := "Authorization: Bearer "+aliceFree, "Authorization: Bearer "+bobKey, "Authorization: Bearer "+operatorFree
		w.want(200, "POST", "/v2/idle/run", `{"input":{"text":"`+strings.Repeat("x", 1000)+`"}}`, bob)
		w.want(200, "POST", "/v2/idle/run", `{"input":{}}`, alice)
		w.budgets.Replace(budget.Users{Limits: budget.Limits{Jobs: 5}})
		all := limitsOf(t, w, "?owner=*", root)
		if len(all["bob"]) != 3 || len(all["alice"]) < 3 || len(all[""]) != 3 {
			t.Errorf("of all users: %+v, want what they use and bob first", all)
		}
		one := limitsOf(t, w, "?owner=bob", root)
		if len(one) != 2 || len(one["bob"]) != len(budget.All()) || one["bob"][0].Name != "jobs" || *one["bob"][0].Limit != 5 || *one["bob"][0].Remaining != 4 {
			t.Errorf("of bob: %+v", one)
		}
		if mine := limitsOf(t, w, "", alice); len(mine) != 2 || mine["alice"][0].Used != 1 {
			t.Errorf("of the caller: %+v", mine)
		}
	})
}

func TestTextsThatUsersChooseCountAsTheEnvironmentDoes(t *testing.T) {
	for _, c := range []struct {
		budget     budget.Budget
		path, body string
	}{
		{budget.PodEnvBytes, "/v2/pods", `{"name":%q,"image":"i","args":%q,"cpu":{"id":"cpu3c","vcpuCount":2}}`},
		{budget.EndpointEnvBytes, "/v2/serverless", `{"name":%q,"type":"QUEUE","image":"i","args":%q,"cpu":[{"id":"cpu3c","vcpuCount":2}],"scaling":{"type":"QUEUE_DELAY","queueDelay":4}}`},
		{budget.TemplateEnvBytes, "/v2/templates", `{"name":%q,"image":"i","category":"CPU","args":%q}`},
	} {
		bubble(t, func(w *testAPI) {
			as := "Authorization: Bearer " + adminFree
			before := limitOf(t, w, as, c.budget).Used
			w.want(201, "POST", c.path, fmt.Sprintf(c.body, strings.Repeat("n", 300), strings.Repeat("a", 500)), as)
			if grew := limitOf(t, w, as, c.budget).Used - before; grew != 801 {
				t.Errorf("%s: a name of 300 bytes, an image of 1 and arguments of 500 count as %d", c.budget, grew)
			}
		})
	}
}

func TestABodyForARecordThatNoBudgetMeasuresHas64KB(t *testing.T) {
	bubble(t, func(w *testAPI) {
		as := "Authorization: Bearer " + adminFree
		for path, body := range map[string]string{
			"/v2/registries":      `{"name":"r","username":"u","password":%q}`,
			"/v2/network-volumes": `{"size":10,"dataCenter":"US-KS-2","name":%q}`,
		} {
			w.want(201, "POST", path, fmt.Sprintf(body, strings.Repeat("x", 60_000)), as)
			if a := w.call("POST", path, fmt.Sprintf(body, strings.Repeat("x", 64<<10)), as); a.status != 413 || !strings.Contains(a.body, "65536 bytes (64 KB)") {
				t.Errorf("%s with more than 64 KB = %d %.200s, want 413", path, a.status, a.body)
			}
		}
	})
}

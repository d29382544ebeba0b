package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/podyard/podyard/internal/suite"
)

// A violation is what axe has found.
type violation struct {
	ID, Help string
	Nodes    []struct {
		HTML           string `json:"html"`
		FailureSummary string `json:"failureSummary"`
	}
}

// wantAccessible checks the page with axe-core, by the rules of WCAG 2.2 AA.
func (b *tab) wantAccessible(name string) {
	b.t.Helper()
	if !eval[bool](b, `!!window.axe`) {
		code, err := os.ReadFile("testdata/axe.min.js")
		check(b.t, err)
		eval[bool](b, string(code)+";true")
	}
	list, err := chromedp.Run(b.ctx, chromedp.Evaluate[[]violation](`axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'], resultTypes: ['violations']}).then(r => r.violations)`, chromedp.EvalAwaitPromise))
	check(b.t, err)
	for _, v := range list {
		for i, n := range v.Nodes {
			if i < 3 {
				b.t.Errorf("%s: %s: %s\n%s\n%s", name, v.ID, v.Help, n.HTML, n.FailureSummary)
			}
		}
	}
}

// furnish makes something of everything. It returns the ids of jobs by what they are.
func (w *world) furnish() map[string]string {
	w.t.Helper()
	jobs := map[string]string{}
	jobs["done"] = w.submit("echo", `{"input":{"text":"a cat","big":9223372036854775809,"n":[1e400,0.10]}}`)
	jobs["failed"] = w.submit("echo", `{"input":{"fail":"CUDA out of memory: tried to allocate 20 GiB"},"queue":{"retry":{"attempts":2,"delay":50}}}`)
	for range 12 {
		jobs["waiting"] = w.submit("idle", `{"input":{"prompt":"a dog on a bicycle"},"queue":{"priority":5}}`)
	}
	w.call("POST", "/v2/idle/run", `{"input":{}}`)
	w.call("PATCH", "/v2/serverless/idle/queue", `{"perUser":4,"deadLetter":86400000}`)
	w.call("PATCH", "/v2/serverless/echo/queue", `{"deadLetter":86400000}`)
	jobs["dead"] = w.submit("echo", `{"input":{"fail":"the model is not there"}}`)
	w.call("POST", "/v2/echo/schedules", `{"cron":"*/5 * * * *","run":{"input":{"nightly":true}}}`)
	w.call("POST", "/v2/echo/batch", `{"name":"captions of March","finalize":true,"requests":[{"input":{"n":1}},{"input":{"n":2}},{"input":{"fail":"no such picture"}}]}`)
	var e struct{ ID string }
	check(w.t, json.Unmarshal(w.call("POST", "/v2/serverless", `{"name":"captions","type":"QUEUE","image":"acme/captions:4","gpu":{"pools":["ADA_24"]},"workers":{"min":1,"max":3},"scaling":{"type":"QUEUE_DELAY","queueDelay":2}}`), &e))
	jobs["captions"] = e.ID
	jobs["streams"] = w.submit("echo", `{"input":{"chunks":["A cat","sits on","a bicycle."]}}`)
	for _, path := range []string{"cats", "dogs"} {
		w.submit("echo", fmt.Sprintf(`{"input":{"of":%q},"webhook":"https://receiver.example/%s"}`, path, path))
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if l, _, _ := w.srv.Services().Jobs.Load(w.t.Context()); l.Deliveries == 2 || time.Now().After(end) {
			break
		}
	}
	w.settle(2, 0, "no answer from receiver.example")
	w.call("POST", "/v2/pods", `{"name":"notebook","image":"acme/jupyter:2","cpu":{"id":"cpu3c","vcpuCount":2},"ports":["8888/http","22/tcp"],"env":{"TOKEN":"a-value-that-is-hidden"}}`)
	w.call("POST", "/v2/account/keys", `{"scopes":["pods:read","endpoint:echo:run"]}`)
	w.call("POST", "/v2/clusters", cluster)
	w.call("POST", "/v2/network-volumes", `{"name":"weights","size":50,"dataCenter":"US-KS-2"}`)
	w.call("POST", "/v2/templates", `{"name":"jupyter","image":"acme/jupyter:2"}`)
	w.call("POST", "/v2/account/secrets", `{"name":"HF_TOKEN","value":"a-value-that-is-hidden"}`)
	w.call("POST", "/v2/registries", `{"name":"ghcr","username":"acme","password":"a-value-that-is-hidden"}`)
	return jobs
}

// Every page is good to read: in both colours, wide and narrow, and for a screen reader.
func TestEveryPageIsAccessible(t *testing.T) {
	w, b := start(t, setup{noHook: true}), browse(t)
	b.size(1280, 900)
	b.open(w.url)
	b.sees("Sign in with a key")
	b.both(w, "sign-in", "", "Sign in with a key")
	b.signIn(w, adminKey)
	jobs := w.furnish()
	for _, p := range []struct{ name, path, sees string }{
		{"overview", "", "Needs attention"}, // what is wrong depends on how long the test takes
		{"endpoint", "e/echo", "How long jobs take"},
		{"why", "e/idle/why", "What would change it"},
		{"jobs", "e/echo/jobs", "CUDA out of memory"},
		{"jobs-empty", "e/echo/jobs?status=CANCELLED", "No job has this status."},
		{"job", "e/echo/jobs/" + jobs["done"], "9223372036854775809"},
		{"job-failed", "e/echo/jobs/" + jobs["failed"], "Why it failed"},
		{"job-waiting", "e/idle/jobs/" + jobs["waiting"], "Why it waits"},
		{"job-gone", "e/echo/jobs/nothing", "not kept any more"},
		{"dead-letters", "e/echo/dead/" + jobs["dead"], "the model is not there"},
		{"schedules", "e/echo/schedules", "*/5 * * * *"},
		{"batches", "e/echo/batches", "captions of March"},
		{"endpoint-webhooks", "e/echo/webhooks", "failed"},
		{"webhooks", "webhooks", "no answer"},
		{"job-stream", "e/echo/jobs/" + jobs["streams"], "the job has ended, 3 chunks"},
		{"workers-of-image", "e/" + jobs["captions"] + "/workers", "Stop…"},
		{"workers", "e/echo/workers", "local-echo"},
		{"worker-log", "e/echo/workers/local-echo", "Log of local-echo"},
		{"scaling", "e/echo/scaling", "Decisions of the scaler"},
		{"queue", "e/idle/queue", "Held by the settings"},
		{"pods", "pods", "notebook"},
		{"all-jobs", "jobs", "of all their users"},
		{"clusters", "clusters", "train"},
		{"account", "account", "Budget"},
		{"billing", "billing", "Billing"},
		{"hosts", "hosts", "Takes new work"},
		{"users", "users", "has something."},
		{"user", "users/admin", "Erase jobs…"},
		{"volumes", "volumes", "weights"},
		{"templates", "templates", "jupyter"},
		{"secrets", "secrets", "HF_TOKEN"},
		{"registries", "registries", "ghcr"},
		{"audit", "audit", "createPod"},
		{"nothing", "nothing", "no such page"},
	} {
		b.goes(w, p.path)
		b.both(w, p.name, p.path, p.sees)
	}
	b.goes(w, "pods")
	b.press("notebook")
	b.both(w, "pod", "", "Show values")
	if text := eval[string](b, `document.body.innerText`); strings.Contains(text, "a-value-that-is-hidden") {
		t.Error("the value of a variable is shown before anybody asked")
	}
	b.press("Change variables…")
	b.both(w, "pod-variables", "", "Add a variable")
	if over := eval[string](b, `[...document.querySelectorAll('dialog input:not([type=password])')].map(i => i.value).join()`); strings.Contains(over, "a-value-that-is-hidden") {
		t.Error("the value of a variable can be read before anybody asked")
	}
	b.press("Keep")
	b.wantNoFaults()
}

// The overview names what is wrong, the most severe first: who is affected, since when, what to do, and
// where more is to be seen.
func TestTheOverviewNamesWhatIsWrong(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	long := strings.Repeat("a-very-long-name-", 6)
	var e struct{ ID string }
	check(t, json.Unmarshal(w.call("POST", "/v2/serverless", fmt.Sprintf(`{"name":%q,"type":"QUEUE","image":"acme/missing:1","cpu":[{"id":"cpu3c","vcpuCount":2}],"workers":{"min":0,"max":1},"scaling":{"type":"QUEUE_DELAY","queueDelay":1}}`, long)), &e))
	w.submit(e.ID, `{"input":{}}`)
	w.call("POST", "/v2/pods", `{"name":"notebook","image":"acme/missing:1","cpu":{"id":"cpu3c","vcpuCount":2}}`)
	b.size(1280, 900)
	b.signIn(w, adminKey)
	b.sees("The image does not start: a-very-long-name-")
	b.sees("Pods have failed: admin")
	b.both(w, "overview-wrong", "", "Needs attention")
	rows := eval[[]string](b, `[...document.querySelectorAll('.attention li')].map(x => x.innerText)`)
	at := func(text string) int {
		return slices.IndexFunc(rows, func(s string) bool { return strings.Contains(s, text) })
	}
	image, failed := at("The image does not start"), at("Pods have failed")
	if image < 0 || failed < image {
		t.Fatalf("the incidents are %q, want the image before the pod", rows)
	}
	for _, part := range []string{"since ", "affects admin", "it does not exist", "Correct the name of the image", "Workers"} {
		if !strings.Contains(rows[image], part) {
			t.Errorf("the incident is %q, want %q in it", rows[image], part)
		}
	}
	eval[bool](b, fmt.Sprintf(`(document.querySelectorAll('.attention li a')[%d].click(), true)`, image))
	b.until(`location.pathname.endsWith(` + quote("/e/"+e.ID+"/workers") + `)`)
	b.wantNoFaults()
}

// both looks at a page in both colours and widths.
func (b *tab) both(_ *world, name, _, sees string) {
	b.t.Helper()
	b.sees(sees)
	for _, theme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 360} {
			if !suite.Long() && os.Getenv("PODYARD_PICTURES") == "" && (theme == "light") == (width == 360) {
				continue // the long form looks at all four
			}
			b.size(width, 900)
			b.theme(theme)
			at := fmt.Sprintf("%s-%s-%d", name, theme, width)
			b.wantAccessible(at)
			b.wantNoSidewaysScrolling(at)
			b.picture(at)
		}
	}
	b.size(390, 900) // the common width of a telephone
	b.wantNoSidewaysScrolling(name + "-390")
}

func (b *tab) wantNoSidewaysScrolling(at string) {
	b.t.Helper()
	if over := eval[int](b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
		b.t.Errorf("%s: the page is %d px wider than the window", at, over)
	}
}

package browser

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/serverless/queue"
)

// texts are what strangers put into names, payloads, errors and logs.
var texts = []string{
	`<script>window.pwned=1</script>`, `<img src=x onerror="window.pwned=1">`, `"><svg onload=window.pwned=1>`, `javascript:window.pwned=1`,
	`</pre><iframe srcdoc="<script>parent.pwned=1</script>">`, `{{constructor.constructor('window.pwned=1')()}}`, "\u202Egnp.exe", `${window.pwned=1}`, `<style>*{display:none}</style>`, "\x1b]0;title\x07\x1b[31mred\x1b[0m",
}

// A wrong key is refused in words. A right one is neither in the page, nor in its address, its
// storage or the log.
func TestKeyIsNotInTheBrowser(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	b.open(w.url)
	b.until(`document.querySelector('input[type=password]')`)
	b.fill("input[type=password]", "a-wrong-key\r")
	b.sees("does not know this key")
	b.until(`document.activeElement.type === 'password'`)
	eval[bool](b, `(document.activeElement.value = '', true)`)
	b.fill("input[type=password]", adminKey+"\r")
	b.sees("Needs attention")
	b.goes(w, "account")
	b.sees("Signed in")
	everything := eval[string](b, `[document.documentElement.outerHTML, location.href, JSON.stringify(localStorage), JSON.stringify(sessionStorage), document.cookie, JSON.stringify(history.state), ...[...document.querySelectorAll('input')].map(i => i.value), ...performance.getEntries().map(e => e.name)].join('\n')`)
	if strings.Contains(everything, "canary-key") || strings.Contains(w.log.String(), "canary-key") {
		t.Error("the key is in the browser or in the log")
	}
	b.press("Sign out")
	b.sees("Sign in with a key")
	b.open(w.url + "account")
	b.sees("Sign in with a key")
	b.wantNoFaults()
}

// What a page shows follows the job: from the queue to its webhook. Nothing has to be loaded
// again.
func TestJobIsFollowedLive(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer hook.Close()
	b.signIn(w, adminKey)
	b.goes(w, "e/echo/jobs")
	b.sees("There are no jobs.")
	job := w.submit("echo", fmt.Sprintf(`{"input":{"sleep":2500,"big":9223372036854775809,"e":1e400,"d":1,"d":2},"webhook":%q}`, hook.URL))
	b.sees(job)
	b.press(job)
	b.sees("taken by a worker")
	b.sees("completed")
	b.sees("9223372036854775809")
	b.sees("1e400")
	b.until(`(document.body.innerText.match(/"d": [12]/g) || []).length >= 4`) // input and output
	b.sees("204")
	waits := w.submit("idle", `{"input":{}}`)
	b.goes(w, "e/idle/why")
	b.sees(waits)
	b.sees("there is none")
	began := time.Now()
	w.call("PATCH", "/v2/serverless/idle/queue", `{"paused":true}`)
	b.sees("its endpoint is paused")
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("the reason was on the page after %v, want 2 s", d)
	}
	b.wantNoFaults()
}

// All jobs that match are counted, then cancelled, and others stay.
func TestAllThatMatchAreCancelled(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	n := 300
	if suite.Long() {
		n = 10_000
	}
	for range n {
		w.submit("idle", `{"input":{}}`)
	}
	b.signIn(w, adminKey)
	b.goes(w, "e/idle/jobs?status=IN_QUEUE")
	count := fmt.Sprintf("%d", n)
	if n >= 1000 {
		count = "10,000"
	}
	b.until(`document.querySelectorAll('.grid tbody tr[data-i]').length > 10`)
	if rows := eval[int](b, `document.querySelectorAll('.grid tr').length`); rows > 80 {
		t.Errorf("%d rows are in the page, want those in sight", rows)
	}
	eval[bool](b, `(document.querySelector('.grid').scrollTop = 1e9, true)`)
	b.until(`document.querySelector('.grid tr[aria-rowindex="` + fmt.Sprint(n+1) + `"] a')`)
	b.press("Cancel…")
	b.sees(count + " jobs")
	b.press("Cancel " + count + " jobs")
	b.sees(count + " jobs were cancelled.")
	b.press("Close")
	b.sees("No job has this status.")
	b.wantNoFaults()
}

// Text of users and workers is shown as it is on every page, and never runs: names, keys, inputs,
// outputs, chunks, errors, lines of logs, and ids of workers. The pages come over HTTP/2.
func TestTextOfOthersStaysText(t *testing.T) {
	w, b := start(t, setup{tls: true}), browse(t)
	w.rt.AddScript(memory.Script{Image: "acme/hostile", Stages: []memory.Stage{{Phase: pods.PhaseHealthy, Lines: texts}}})
	hostile := texts[0]
	var jobs []string
	for i, text := range texts {
		jobs = append(jobs, w.submit("echo", fmt.Sprintf(`{"input":{"fail":%s},"queue":{"key":%s}}`, raw(text), raw(text))))
		w.call("POST", "/v2/pods", fmt.Sprintf(`{"name":%s,"image":"acme/hostile","cpu":{"id":"cpu3c","vcpuCount":2},"env":{"X%d":%s}}`, raw(text), i, raw(text)))
		w.take("idle", w.submit("idle", fmt.Sprintf(`{"input":{"text":%s}}`, raw(text))), text)
	}
	streams := w.submit("echo", fmt.Sprintf(`{"input":{"chunks":%s}}`, raw(texts)))
	w.call("PATCH", "/v2/serverless/echo/queue", `{"deadLetter":86400000}`)
	dead := w.submit("echo", fmt.Sprintf(`{"input":{"fail":%s},"webhook":"http://127.0.0.1:1/<script>"}`, raw(hostile)))
	w.call("POST", "/v2/echo/batch", fmt.Sprintf(`{"name":%s,"requests":[{"input":{}}]}`, raw(hostile)))
	w.call("POST", "/v2/echo/schedules", fmt.Sprintf(`{"cron":"*/5 * * * *","run":{"input":{"text":%s}}}`, raw(hostile)))
	var e struct{ ID string }
	check(t, json.Unmarshal(w.call("POST", "/v2/serverless", fmt.Sprintf(`{"name":%s,"type":"QUEUE","image":"acme/hostile","args":%s,"env":{"A":%s},"cpu":[{"id":"cpu3c","vcpuCount":2}],"workers":{"min":1,"max":1},"scaling":{"type":"QUEUE_DELAY","queueDelay":1}}`, raw(hostile), raw("a"), raw(hostile))), &e))
	b.signIn(w, adminKey)
	if p := eval[string](b, `performance.getEntriesByType('navigation')[0].nextHopProtocol`); p != "h2" {
		t.Errorf("the page came over %s, want h2", p)
	}
	strange := "e/" + strings.ReplaceAll(strings.ReplaceAll(hostile, "/", "%2F"), "<", "%3C")
	for _, x := range []struct{ path, sees string }{
		{"", hostile}, {"e/echo", "How long jobs take"}, {"e/echo/why", "Why the oldest job waits"}, {"e/echo/jobs", hostile}, {"e/echo/jobs?status=FAILED", texts[1]}, {"e/idle/jobs", hostile},
		{"e/echo/jobs/" + jobs[0], texts[0]}, {"e/echo/jobs/" + jobs[1], texts[1]}, {"e/echo/jobs/" + jobs[6], texts[6]}, {"e/echo/jobs/" + streams, texts[3]},
		{"e/echo/dead", dead}, {"e/echo/dead/" + dead, "onerror"}, {"e/echo/schedules", "*/5"}, {"e/echo/batches", hostile}, {"e/echo/webhooks", dead}, {"webhooks", dead},
		{"e/idle/workers", hostile}, {"e/idle/scaling", "Decisions"}, {"e/idle/queue", "Settings of the queue"}, {"e/" + e.ID, hostile}, {"e/" + e.ID + "/workers", "acme/hostile"},
		{"pods", texts[1]}, {"account", "Budget"}, {"billing", "Billing"}, {"hosts", "Takes new work"}, {"audit", "createPod"},
		{strange, "no such endpoint"}, {strange + "/jobs/x", "no such"}, {"pods/" + strings.ReplaceAll(hostile, "/", "%2F"), "no such pod"},
	} {
		if strings.HasPrefix(x.path, "e/echo/dead/") {
			x.sees = dead
		}
		b.goes(w, x.path)
		b.sees(x.sees)
		b.wantOnlyText(x.path)
	}
	b.goes(w, "e/echo/jobs/"+streams)
	for _, text := range texts { // the stream shows the JSON as it came
		quoted := strings.Trim(raw(text), `"`)
		b.until(`document.querySelector('pre[aria-label=Chunks]')?.textContent.includes(` + quote(quoted) + `)`)
	}
	b.goes(w, "pods")
	b.press(texts[1])
	b.sees("••••••")
	b.press("Show values")
	b.sees(texts[1])
	for _, line := range texts {
		if strings.Contains(line, "\x1b") {
			line = "red" // what a terminal would do is taken out
		}
		b.until(`document.querySelector('pre.log')?.textContent.includes(` + quote(line) + `)`)
	}
	b.wantOnlyText("a pod")
	b.wantNoFaults()
}

// raw is a value as JSON, as others write it: without escapes for HTML.
func raw(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // strings
	return strings.TrimSpace(b.String())
}

// wantOnlyText fails the test if a text of strangers has run or has become an element.
func (b *tab) wantOnlyText(where string) {
	b.t.Helper()
	if eval[bool](b, `!!window.pwned || !!document.querySelector('iframe, main script, main style, main img, main svg[onload], [onerror]')`) {
		b.t.Errorf("%s: text has become markup", where)
	}
	if over := eval[int](b, `document.querySelectorAll('main').length`); over != 1 {
		b.t.Errorf("%s: the page has %d main parts", where, over)
	}
}

// The chunks of a job are on its page as they come, and the reader of the stream still gets all.
func TestTheStreamIsShownAndLeftToItsReader(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	b.signIn(w, adminKey)
	job := w.submit("echo", `{"input":{"chunks":["one",{"two":2},1e400,"four","five","six","seven","eight"],"sleep":8000}}`)
	b.goes(w, "e/echo/jobs/"+job)
	b.until(`document.querySelector('pre[aria-label=Chunks]')?.textContent.includes('{"output":"one"}')`)
	b.until(`document.querySelector('pre[aria-label=Chunks]')?.textContent.includes('1e400')`)
	b.sees("following, 8 chunks")
	if got := string(w.call("GET", "/v2/echo/stream/"+job, "")); !strings.Contains(got, `"one"`) || !strings.Contains(got, `"eight"`) {
		t.Errorf("the reader got %s, want all chunks", got)
	}
	b.sees("the job has ended, 8 chunks")
	// Who opens the page after the reader is told that the chunks were read.
	again := w.submit("echo", `{"input":{"chunks":["first"],"sleep":3000}}`)
	b.goes(w, "e/echo/jobs/"+again)
	b.until(`document.querySelector('pre[aria-label=Chunks]')?.textContent.includes('first')`)
	w.call("GET", "/v2/echo/stream/"+again, "")
	b.goes(w, "")
	b.sees("Needs attention")
	b.goes(w, "e/echo/jobs/"+again)
	b.sees("Stream")
	b.wantNoFaults()
}

// The page of a job says which workers had it and how they lost it, and follows the lease.
func TestTheTimelineOfAJobHasItsLeases(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	ref := queue.Ref{Endpoint: "idle", ID: queue.JobID(w.submit("idle", `{"input":{}}`))}
	move := func(op queue.Op) {
		op.Ref = ref
		res := make([]queue.Result, 1)
		check(t, w.jobs.Apply(t.Context(), queue.At(time.Now()), []queue.Op{op}, res))
		check(t, res[0].Err)
	}
	w.take("idle", string(ref.ID), "first")
	move(queue.Op{Kind: queue.OpWorkerLost, Worker: "first"})
	w.take("idle", string(ref.ID), "second")
	move(queue.Op{Kind: queue.OpRelease, Worker: "second"})
	w.take("idle", string(ref.ID), "third")
	b.signIn(w, adminKey)
	b.goes(w, "e/idle/jobs/"+string(ref.ID))
	entries := func() string {
		return eval[string](b, `[...document.querySelectorAll('.timeline li')].map(x => [x.querySelector('strong'), x.querySelector('.note')].map(e => e?.textContent || '').join(':')).join('; ')`)
	}
	b.until(`document.querySelectorAll('.timeline li').length >= 9`)
	const past = "submitted:by admin; taken by a worker:first; lost by its worker:first; queued again:; taken by a worker:second; handed back:second; queued again:; taken by a worker:third; "
	const future = "lease ends unless the worker pings:; execution timeout:; deleted by its ttl:"
	if got := entries(); got != past+future {
		t.Errorf("the timeline is %s, want %s", got, past+future)
	}
	move(queue.Op{Kind: queue.OpChunk, Worker: "third", Payload: []byte(`{"output":1}`)})
	b.until(`document.querySelector('.timeline').textContent.includes('first chunk')`)
	move(queue.Op{Kind: queue.OpFinish, Worker: "third", Status: queue.Completed, Payload: []byte(`1`)})
	b.until(`document.querySelector('.timeline').textContent.includes('result is deleted')`)
	if got := entries(); !strings.HasPrefix(got, past+"first chunk:after ") || !strings.Contains(got, "; completed:ran ") {
		t.Errorf("the timeline at the end is %s", got)
	}
	b.wantNoFaults()
}

// A worker that the service started is stopped; another one comes, as the settings say. One that runs
// in a program has no button.
func TestAWorkerIsStopped(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	w.rt.AddScript(memory.Script{Image: "acme/captions", Stages: []memory.Stage{{Phase: pods.PhaseHealthy}}})
	var e struct{ ID string }
	check(t, json.Unmarshal(w.call("POST", "/v2/serverless", `{"name":"captions","type":"QUEUE","image":"acme/captions","cpu":[{"id":"cpu3c","vcpuCount":2}],"workers":{"min":1,"max":1},"scaling":{"type":"QUEUE_DELAY","queueDelay":1}}`), &e))
	b.signIn(w, adminKey)
	b.goes(w, "e/echo/workers")
	b.sees("local-echo")
	if eval[bool](b, `[...document.querySelectorAll('button')].some(x => x.textContent.trim() === 'Stop…')`) {
		t.Error("a worker of the program has a button that stops it")
	}
	b.goes(w, "e/"+e.ID+"/workers")
	b.sees("acme/captions")
	old := eval[string](b, `document.querySelector('.grid tbody code').textContent`)
	w.joins(e.ID, old)
	b.goes(w, "e/"+e.ID)
	b.until(`/In the last hour1P50\S+ (ms|s)P90/.test(document.querySelector('main').textContent.replace(/\s*\n\s*/g, ''))`)
	b.goes(w, "e/"+e.ID+"/workers")
	b.press("Stop…")
	b.press("Stop the worker")
	b.sees(old + " ends when it has no job.")
	b.until(`document.querySelector('.grid tbody code')?.textContent && !document.querySelector('.grid').textContent.includes(` + quote(old) + `)`)
	b.wantNoFaults()
}

// What became of the webhooks of all endpoints is on one page; those that failed are sent again,
// after a count.
func TestWebhooksOfAllJobsAreListedAndSentAgain(t *testing.T) {
	w, b := start(t, setup{noHook: true}), browse(t)
	var refs []queue.Ref
	for _, n := range []int{1, 2, 3} {
		refs = append(refs, queue.Ref{Endpoint: "echo", ID: queue.JobID(w.submit("echo", fmt.Sprintf(`{"input":{"n":%d},"webhook":"http://receiver.test/%d"}`, n, n)))})
	}
	w.submit("echo", `{"input":{}}`)
	b.signIn(w, adminKey)
	b.goes(w, "webhooks")
	b.until(`(document.querySelector('.grid')?.textContent.match(/pending/g) || []).length === 3`)
	b.until(`document.querySelector('.tile dd')?.textContent === '3'`)
	w.settle(3, 500, "the receiver answered 500")
	b.goes(w, "webhooks?state=failed")
	b.until(`(document.querySelector('.grid')?.textContent.match(/the receiver answered 500/g) || []).length === 3`)
	b.press("Send again all 3 that failed…")
	b.sees("3 webhooks will be sent")
	b.press("Send 3 webhooks")
	b.sees("3 webhooks are sent again.")
	b.press("Close")
	w.settle(3, 204, "")
	b.goes(w, "webhooks?state=delivered")
	b.until(`document.querySelectorAll('.grid tbody tr[data-i]').length === 3`)
	b.goes(w, "e/echo/webhooks")
	b.sees("204")
	b.press(string(refs[0].ID))
	b.sees("http://receiver.test/1")
	b.until(`(document.querySelector('main').textContent.match(/500|204/g) || []).length >= 2`)
	b.wantNoFaults()
}

// A list of jobs has their age and how often each was tried. Of jobs whose ids begin alike, those are
// shown, and cancelled, that were asked for.
func TestJobsAreFoundByTheirIDsWithTheirAgeAndAttempts(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	again := w.submit("echo", `{"input":{"fail":"no GPU"},"queue":{"retry":{"attempts":4,"delay":200000}}}`)
	first, other := w.submit("idle", `{"input":{}}`), w.submit("idle", `{"input":{}}`)
	n := 1
	for first[:n] == other[:n] {
		n++
	}
	b.signIn(w, adminKey)
	b.goes(w, "e/echo/jobs")
	b.sees("tried 1 time of 4, next in ")
	b.until(`/(now|s ago)/.test(document.querySelector('.grid tbody tr time').textContent)`)
	b.press(again)
	b.sees("tried 1 time of 4, next in ")
	b.until(`document.querySelector('#attempts').parentElement.textContent.includes('no GPU')`)
	b.goes(w, "e/idle/jobs")
	b.sees(other)
	b.fill(`input[name=prefix]`, first[:n]+"\r")
	b.until(`document.querySelectorAll('.grid tbody tr[data-i]').length === 1`)
	b.sees(first)
	b.press("Cancel…")
	b.sees("1 job that have not ended")
	b.press("Cancel 1 job")
	b.sees("1 job was cancelled.")
	b.press("Close")
	b.goes(w, "e/idle/jobs?status=CANCELLED&id="+other[:n])
	b.sees("No job has an id that begins with " + other[:n])
	b.wantNoFaults()
}

// A large payload is a tree whose parts are folded at first. What it shows is the text as it came, of
// strangers too; a small one is shown as lines.
func TestALargePayloadIsATreeOfTextThatIsFolded(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	deep := strings.Repeat("[", 60) + strings.Repeat("]", 60)
	long := make([]int, 350)
	input := fmt.Sprintf(`{"big":9223372036854775809,"e":1e400,"d":1,"d":2,%s:%s,"deep":%s,"text":{"a \" }, [":%s},"list":%s,"empty":[ ],"pad":{"s":%q}}`,
		raw(texts[0]), raw(texts), deep, raw(texts[1]), raw(long), strings.Repeat("pad ", 800))
	big, small := w.submit("echo", `{"input":`+input+`}`), w.submit("echo", `{"input":{"n":1e400}}`)
	b.signIn(w, adminKey)
	b.goes(w, "e/echo/jobs/"+big)
	tree := `document.querySelector('.tree[aria-label=Input]')`
	b.until(tree + `?.textContent.includes('9223372036854775809')`)
	for _, want := range []string{`"e": 1e400`, `"d": 1`, `"d": 2`, texts[0], texts[6], `"empty": []`, `"pad": {`} {
		b.until(tree + `.innerText.includes(` + quote(want) + `)`)
	}
	b.until(`!` + tree + `.innerText.includes('pad pad')`) // it is long, and so folded
	eval[bool](b, `([...`+tree+`.querySelectorAll('summary')].find(x => x.textContent.startsWith('"pad"')).click(), true)`)
	b.until(tree + `.innerText.includes('pad pad')`)
	b.until(`[...` + tree + `.querySelectorAll('button')].some(x => x.textContent.includes('250 more'))`)
	b.press("250 more")
	b.until(tree + `.innerText.includes('349: 0')`)
	b.wantOnlyText("a tree")
	b.wantAccessible("a tree")
	b.picture("tree")
	b.until(`document.querySelector('.payload select').value === 'tree'`)
	eval[bool](b, `(() => { const s = document.querySelector('.payload select'); s.value = 'came'; s.dispatchEvent(new Event('change', {bubbles: true})); return true })()`)
	b.until(`document.querySelector('pre[aria-label=Input]')?.textContent === ` + quote(input))
	b.goes(w, "e/echo/jobs/"+small)
	b.until(`document.querySelector('pre[aria-label=Input]')?.textContent.includes('"n": 1e400')`)
	b.wantNoFaults()
}

// settle makes the last attempt of n webhooks.
func (w *world) settle(n, status int, text string) {
	w.t.Helper()
	now := queue.At(time.Now())
	ds, err := w.jobs.Deliveries(w.t.Context(), now+1000, now+60_000, 100)
	check(w.t, err)
	if len(ds) != n {
		w.t.Fatalf("%d webhooks are to be sent, want %d", len(ds), n)
	}
	for _, d := range ds {
		check(w.t, w.jobs.Record(w.t.Context(), []queue.Attempt{{Ref: d.Job.Ref, DeliveryID: d.ID, Token: d.Token, At: now, Status: status, Err: text}}))
	}
}

// The variables of a pod are changed without being shown; one of several lines stays as it is.
func TestVariablesOfAPodAreChanged(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	var pod struct{ ID string }
	check(t, json.Unmarshal(w.call("POST", "/v2/pods", `{"name":"notebook","image":"acme/jupyter","cpu":{"id":"cpu3c","vcpuCount":2},"env":{"TOKEN":"a-secret","CERT":"line one\nline two","OLD":"x"}}`), &pod))
	b.signIn(w, adminKey)
	b.goes(w, "pods/"+pod.ID)
	b.press("Change variables…")
	b.sees("several lines")
	if html := eval[string](b, `document.querySelector('dialog').innerText + [...document.querySelectorAll('dialog input:not([type=password])')].map(i => i.value)`); strings.Contains(html, "a-secret") || strings.Contains(html, "line one") {
		t.Error("a value is shown before anybody asked")
	}
	b.until(`document.querySelector('dialog button[aria-label="Remove OLD"]')`)
	eval[bool](b, `(document.querySelector('dialog button[aria-label="Remove OLD"]').click(), true)`)
	b.fill(`dialog input[aria-label="Value of TOKEN"]`, "-2")
	b.press("Add a variable")
	b.fill(`dialog li:last-child input:not([type=password])`, "MODE")
	b.fill(`dialog li:last-child input[type=password]`, "fast")
	b.press("Change")
	b.sees("The variables were changed.")
	var got struct{ Env map[string]string }
	check(t, json.Unmarshal(w.call("GET", "/v2/pods/"+pod.ID, ""), &got))
	want := map[string]string{"TOKEN": "a-secret-2", "CERT": "line one\nline two", "MODE": "fast"}
	if !maps.Equal(got.Env, want) {
		t.Errorf("the pod has %v, want %v", got.Env, want)
	}
	b.press("Change variables…")
	b.press("Show values")
	b.until(`[...document.querySelectorAll('dialog textarea')].some(x => x.value === 'line one\nline two')`)
	b.press("Keep")
	b.wantNoFaults()
}

// A session outlives a restart of a server with the same secret. While the server is away the
// page says so, and goes on by itself.
func TestPageOutlivesARestart(t *testing.T) {
	secret := []byte("a secret of the tests, 32 bytes or more")
	all := stores()
	w, b := start(t, setup{secret: secret, stores: all}), browse(t)
	b.signIn(w, adminKey)
	b.goes(w, "e/idle")
	b.sees("Empty the queue")
	w.stop()
	b.sees("The server cannot be reached.")
	again := start(t, setup{secret: secret, stores: all, addr: w.addr})
	b.until(`!document.body.innerText.includes('cannot be reached')`)
	again.submit("idle", `{"input":{}}`)
	b.sees("there is none")
	again.stop()
	other := start(t, setup{addr: w.addr}) // with a secret of its own
	b.sees("Sign in with a key")
	other.signInAgain(b)
	b.sees("Empty the queue") // at the same page
}

func (w *world) signInAgain(b *tab) {
	b.until(`document.querySelector('input[type=password]')`)
	b.fill("input[type=password]", adminKey+"\r")
}

// A job is cancelled, another retried, and its webhook sent again, without a mouse.
func TestKeyboardIsEnough(t *testing.T) {
	w, b := start(t, setup{path: "/tools/console/"}), browse(t)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer hook.Close()
	waits := w.submit("idle", `{"input":{}}`)
	failed := w.submit("echo", fmt.Sprintf(`{"input":{"fail":"once"},"webhook":%q}`, hook.URL))
	b.signIn(w, adminKey)
	b.until(`document.activeElement`)
	// tabTo moves the focus with the Tab key until it is on a text.
	tabTo := func(text string) {
		t.Helper()
		for range 80 {
			b.keys(kb.Tab)
			if eval[bool](b, `document.activeElement.textContent.trim() === `+quote(text)) {
				return
			}
		}
		t.Fatalf("the Tab key does not come to %q", text)
	}
	b.keys("/")
	b.until(`document.activeElement.id === 'q'`)
	eval[bool](b, `(document.activeElement.value = '', true)`) // what drives the browser types the slash, too
	b.keys(waits + "\r")
	b.sees("Why it waits")
	eval[bool](b, `(document.activeElement.blur(), true)`)
	tabTo("Cancel")
	b.keys("\r")
	b.until(`document.querySelector('dialog[open]')`)
	tabTo("Cancel the job")
	b.keys("\r")
	b.sees("The job is cancelled.")
	b.goes(w, "e/echo/jobs")
	b.sees(failed)
	eval[bool](b, `(document.activeElement.blur(), true)`)
	b.keys("j")
	b.until(`document.activeElement.closest('tr')`)
	b.keys("x")
	b.sees("1 selected job")
	b.keys("\r")
	b.sees("Why it failed")
	b.until(`[...document.querySelectorAll('button')].some(x => x.textContent.trim() === 'Send again')`)
	tabTo("Send again")
	b.keys("\r")
	b.sees("The webhook is sent again.")
	eval[bool](b, `(document.activeElement.blur(), true)`)
	tabTo("Retry")
	b.keys("\r")
	b.sees("The job is queued again.")
	eval[bool](b, `(document.activeElement.blur(), true)`)
	b.keys("?")
	b.sees("next and previous row")
	b.keys(kb.Escape)
	b.until(`!document.querySelector('dialog[open]')`)
	b.keys("gp")
	b.sees("There are no pods.")
	b.wantNoFaults()
}

// A page paints soon, and does not grow with a queue of 10,000 jobs and many changes.
func TestPageStaysSmallAndQuick(t *testing.T) {
	suite.SkipUnlessLong(t)
	w, b := start(t, setup{}), browse(t)
	for range 10_000 {
		w.submit("idle", `{"input":{}}`)
	}
	b.open(w.url)
	b.sees("Sign in with a key")
	paint := eval[float64](b, `performance.getEntriesByName('first-contentful-paint')[0].startTime`)
	b.signIn(w, adminKey)
	b.goes(w, "e/idle/jobs")
	b.until(`document.querySelectorAll('.grid tbody tr[data-i]').length > 10`)
	began := time.Now()
	for i := 0; time.Since(began) < 10*time.Second; i++ {
		w.submit("echo", `{"input":{}}`)
		w.submit("idle", `{"input":{}}`)
		time.Sleep(40*time.Millisecond - time.Since(began)%(40*time.Millisecond))
	}
	heap := eval[int](b, `performance.memory.usedJSHeapSize`)
	t.Logf("first paint after %.0f ms; the heap of the page has %d MB", paint, heap>>20)
	if heap > 60<<20 || paint > float64(suite.Within(300*time.Millisecond).Milliseconds()) {
		t.Errorf("first paint after %.0f ms, heap %d MB: want 300 ms on a machine at rest, and 60 MB", paint, heap>>20)
	}
}

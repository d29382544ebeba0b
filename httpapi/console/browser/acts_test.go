package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/podyard/podyard/internal/suite"
)

// texts are what strangers put into names, payloads, errors and logs.
var texts = []string{
	`<script>window.pwned=1</script>`, `<img src=x onerror="window.pwned=1">`, `"><svg onload=window.pwned=1>`, `javascript:window.pwned=1`,
	`</pre><iframe srcdoc="<script>parent.pwned=1</script>">`, `{{constructor.constructor('window.pwned=1')()}}`, "\u202Egnp.exe", `${window.pwned=1}`, `<style>*{display:none}</style>`,
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
	if d := time.Since(began); d > 4*time.Second {
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

// Text of users and workers is shown as it is, and never runs.
func TestTextOfOthersStaysText(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	var jobs []string
	for _, text := range texts {
		jobs = append(jobs, w.submit("echo", fmt.Sprintf(`{"input":{"fail":%s}}`, quote(text))))
		w.call("POST", "/v2/pods", fmt.Sprintf(`{"name":%s,"image":"acme/x","cpu":{"id":"cpu3c","vcpuCount":2},"env":{"X":%s}}`, quote(text), quote(text)))
	}
	w.call("POST", "/v2/echo/batch", fmt.Sprintf(`{"name":%s,"requests":[{"input":{}}]}`, quote(texts[0])))
	b.signIn(w, adminKey)
	for path, sees := range map[string]string{"": "Needs attention", "e/echo/jobs": texts[0], "pods": texts[1], "e/echo/batches": texts[0], "e/" + strings.ReplaceAll(texts[0], "/", "%2F"): "no such endpoint", "e/echo/jobs/" + jobs[0]: texts[0], "e/echo/jobs/" + jobs[1]: texts[1]} {
		b.goes(w, path)
		b.sees(sees)
	}
	time.Sleep(100 * time.Millisecond) // what would run would run by now
	if eval[bool](b, `!!window.pwned || !!document.querySelector('iframe, main script, main style, main img')`) {
		t.Error("text has become markup")
	}
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
	if heap > 60<<20 || paint > 1000 {
		t.Errorf("first paint after %.0f ms, heap %d MB: want 300 ms on a machine at rest, and 60 MB", paint, heap>>20)
	}
}

package browser

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// A search finds by name and by a part of an id, opens what is alone, and lists what is not.
func TestASearchFindsByNameAndByAPartOfAnId(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	job := w.submit("idle", `{"input":{}}`)
	var pod struct{ ID string }
	check(t, json.Unmarshal(w.call("POST", "/v2/pods", `{"name":"sdxl-notebook","image":"acme/jupyter:2","cpu":{"id":"cpu3c","vcpuCount":2}}`), &pod))
	w.call("POST", "/v2/pods", `{"name":"sdxl-train","image":"acme/jupyter:2","cpu":{"id":"cpu3c","vcpuCount":2}}`)
	b.signIn(w, adminKey)
	for _, x := range []struct{ text, path string }{
		{job[:8], "e/idle/jobs/" + job}, {"XL-note", "pods/" + pod.ID}, {pod.ID[4:], "pods/" + pod.ID}, {"local-ec", "e/echo/workers/local-echo"}, {"idl", "e/idle"},
	} {
		b.goes(w, "account")
		b.sees("Signed in")
		b.fill("#q", x.text+"\r")
		b.until(`location.pathname.endsWith(` + quote("/console/"+x.path) + `)`)
	}
	b.fill("#q", "sdxl\r")
	b.sees("sdxl-train")
	b.sees("sdxl-notebook")
	b.both(w, "find", "", "Find")
	b.fill("#q", "no-such-thing\r")
	b.sees("Nothing that this key may see has this name")
	b.wantNoFaults()
}

// The title of a column sorts the rows of a table, the other way round, and not any more.
func TestATableIsSortedByTheTitleOfAColumn(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	for _, name := range []string{"pear", "apple 10", "apple 9"} {
		w.call("POST", "/v2/pods", fmt.Sprintf(`{"name":%q,"image":"acme/jupyter:2","cpu":{"id":"cpu3c","vcpuCount":2}}`, name))
	}
	b.signIn(w, adminKey)
	b.goes(w, "pods")
	b.sees("pear")
	rows := func() []string {
		return eval[[]string](b, `[...document.querySelectorAll('.grid tbody th a')].map(x => x.textContent)`)
	}
	as := func(state string) {
		t.Helper()
		b.press("Pod" + map[string]string{"descending": " ▲", "": " ▼"}[state])
		b.until(`(document.querySelector('.grid thead th').getAttribute('aria-sort') || '') === ` + quote(state))
	}
	came, sorted := rows(), []string{"apple 9", "apple 10", "pear"}
	as("ascending")
	if got := rows(); !slices.Equal(got, sorted) {
		t.Errorf("sorted by name: %q, want %q", got, sorted)
	}
	as("descending")
	slices.Reverse(sorted)
	if got := rows(); !slices.Equal(got, sorted) {
		t.Errorf("the other way round: %q, want %q", got, sorted)
	}
	as("")
	if got := rows(); !slices.Equal(got, came) {
		t.Errorf("at the end: %q, want %q as they came", got, came)
	}
	b.wantNoFaults()
}

// Who comes back from a job is where he was in the list, with what he had selected.
func TestTheListOfJobsKeepsItsPlaceOnBack(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	w.queueUp(500)
	b.size(1280, 900)
	b.signIn(w, adminKey)
	b.goes(w, "e/idle/jobs")
	b.until(`document.querySelectorAll('.grid tbody tr[data-i]').length > 10`)
	b.keys("j")
	b.until(`document.activeElement.closest('tr[data-i="0"] th')`)
	b.keys("x")
	b.until(`document.querySelectorAll('.grid tr.chosen').length === 1`)
	eval[bool](b, `(document.querySelector('.grid').scrollTop = 4000, true)`)
	b.until(`document.querySelector('.grid tr[data-i="115"] a')`)
	eval[bool](b, `(scrollTo(0, 120), document.querySelector('.grid tr[data-i="115"] a').focus({preventScroll: true}), true)`)
	at := eval[[]float64](b, `[scrollY, document.querySelector('.grid').scrollTop]`)
	b.keys("\r")
	b.sees("Why it waits")
	eval[bool](b, `(history.back(), true)`)
	b.until(fmt.Sprintf(`document.querySelector('.grid') && Math.abs(scrollY - %f) < 3 && Math.abs(document.querySelector('.grid').scrollTop - %f) < 3`, at[0], at[1]))
	b.until(`document.querySelector('.grid tr[data-i="115"] a')`)
	b.sees("With 1 selected job:")
	b.wantNoFaults()
}

// The charts of an endpoint have axes, and say the value below the pointer and the keys.
func TestChartsHaveAxesAndValues(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	for range 3 {
		w.submit("echo", `{"input":{}}`)
	}
	w.submit("echo", `{"input":{"fail":"no"}}`)
	b.size(1280, 900)
	b.signIn(w, adminKey)
	b.goes(w, "e/echo")
	b.sees("Jobs that ended in a minute")
	b.until(`/completed 3.*failed 1/s.test(document.querySelector('.chart figcaption').innerText)`) // the second sample comes after 5 s
	axes := eval[[]string](b, `[...document.querySelectorAll('.chart:first-child .plot span')].map(x => x.textContent)`)
	if len(axes) != 6 || axes[0] != "5" || axes[1] != "" || axes[2] != "0" || !strings.Contains(axes[5], ":") {
		t.Errorf("the axes are %q, want 5, no half job, 0, and three times", axes)
	}
	// The first minute of latency comes after a minute: the page gets another answer meanwhile.
	eval[bool](b, `(() => { const own = fetch; window.fetch = async (...a) => {
		const r = await own(...a)
		if (!String(a[0].url ?? a[0]).includes('data/history')) return r
		const d = await r.json()
		d.latency = {every: 60, waited: {p50: [5, null, 7], p90: [50, null, 90]}, ran: {p50: [null, 2000, null], p90: [30000, 31000, null]}}
		return new Response(JSON.stringify(d), {status: r.status, headers: r.headers})
	}; return true })()`)
	b.until(`/How long jobs waited.*P50 7 ms.*P90 90 ms/s.test(document.body.innerText) && /How long jobs ran.*P50 –.*P90 –/s.test(document.body.innerText)`)
	if got := eval[string](b, `[...document.querySelectorAll('.chart')].find(x => x.innerText.includes('jobs ran')).querySelector('svg').ariaLabel`); got != "How long jobs ran: now P50 –, at most 2 s; now P90 –, at most 31 s." {
		t.Errorf("the chart of how long jobs ran says %q", got)
	}
	eval[bool](b, `(document.querySelector('.chart svg').focus(), true)`)
	b.keys(kb.Home)
	b.until(`document.querySelector('.chart .at') || document.querySelector('.chart figcaption').innerText.includes(':')`)
	b.both(w, "endpoint-charts", "", "Jobs that ended in a minute")
	b.wantNoFaults()
}

// The error of the stock SDK is an object in a string: its message is in the lists, and the job has its traceback.
func TestTheErrorOfAnSDKIsUnfolded(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	sdk := `{"error_type": "<class 'RuntimeError'>", "error_message": "CUDA out of memory", "error_traceback": "Traceback (most recent call last):\n  File \"h.py\", line 7", "worker_id": "w1"}`
	w.call("PATCH", "/v2/serverless/echo/queue", `{"deadLetter":86400000}`)
	job := w.submit("echo", fmt.Sprintf(`{"input":{"fail":%s}}`, quote(sdk)))
	other := w.submit("echo", `{"input":{"fail":"{\"error_message\": 7}"}}`)
	b.signIn(w, adminKey)
	for _, list := range []string{"e/echo/jobs", "e/echo/dead"} {
		b.goes(w, list)
		b.until(`[...document.querySelectorAll('.grid .clip')].some(x => x.textContent === 'RuntimeError: CUDA out of memory')`)
		b.until(`[...document.querySelectorAll('.grid .clip')].some(x => x.textContent === '{"error_message": 7}')`)
	}
	b.goes(w, "e/echo/jobs/"+job)
	b.sees("Traceback (most recent call last):\n  File \"h.py\", line 7")
	b.both(w, "job-sdk-error", "", "As the worker has sent it")
	if got := eval[string](b, `document.querySelector('.why pre').textContent`); got != "RuntimeError: CUDA out of memory" {
		t.Errorf("the error is %q", got)
	}
	b.goes(w, "e/echo/jobs/"+other)
	b.until(`document.querySelector('.why pre')?.textContent === '{"error_message": 7}'`)
	b.wantNoFaults()
}

// The filter of the audit log is in the address, so that it can be sent to somebody.
func TestTheAuditLogIsNarrowedDownByTimeAndToRefusals(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	w.call("POST", "/v2/pods", `{"name":"notebook","image":"podyard/web","cpu":{"id":"cpu3c","vcpuCount":2}}`)
	b.signIn(w, adminKey)
	b.goes(w, "audit")
	b.sees("createPod")
	eval[bool](b, `(document.querySelector('input[name=refused]').click(), true)`)
	b.press("Show")
	b.sees("No record matches.")
	b.until(`new URLSearchParams(location.search).get('kind') === 'refusal' && document.querySelector('input[name=refused]').checked`)
	b.goes(w, "audit?since=2200-01-01T00:00:00.000Z")
	b.sees("No record matches.")
	b.until(`document.querySelector('input[name=since]').value !== '' && !document.querySelector('input[name=refused]').checked`)
	b.goes(w, "audit?since=2000-01-01T00:00:00.000Z&user=admin")
	b.sees("createPod")
	b.wantNoFaults()
}

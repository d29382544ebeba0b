package browser

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless"
)

// Bounds of a tab (docs/performance.md).
const (
	maxShare  = 0.05 // of a core, that an open tab takes from the server at 50 events a second
	maxPaint  = 300  // milliseconds until the first paint
	maxLoaded = 80 << 10
	eachRound = 10 * time.Second
	maxFrame  = 50 // milliseconds, of 99 of 100 frames while a list is scrolled and 50 jobs a second come
)

// program starts the example server as a process of its own, whose use of the processor can be read.
func program(t *testing.T) (w *world, pid int) {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "podyard")
	build := exec.Command("go", "build", "-o", bin, "./examples/server")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(bin, "serve", "-addr", "127.0.0.1:0", "-data", "", "-runtime", "process", "-log-level", "error")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PODYARD_API_KEY="+adminKey)
	out, err := cmd.StdoutPipe()
	check(t, err)
	cmd.Stderr = os.Stderr
	check(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if base, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			go func() {
				for lines.Scan() { // what it prints later is not needed
				}
			}()
			return &world{t: t, base: base, addr: strings.TrimPrefix(base, "http://"), url: base + "/console/", http: http.DefaultClient}, cmd.Process.Pid
		}
	}
	t.Fatal("the server does not say where it listens")
	return nil, 0
}

// used is how long a process has had a core.
func used(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	check(t, err)
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	sum := 0
	for _, f := range fields[11:13] { // user and system, in hundredths of a second
		n, err := strconv.Atoi(f)
		check(t, err)
		sum += n
	}
	return time.Duration(sum) * 10 * time.Millisecond
}

// load makes 25 jobs a second for a round, each of which is submitted and ends, and returns the share of a core
// that the server had meanwhile.
func (w *world) load(pid int) float64 {
	w.t.Helper()
	before, began := used(w.t, pid), time.Now()
	for i := range int(eachRound / (40 * time.Millisecond)) {
		w.submit("echo", `{"input":{"text":"a cat"}}`)
		time.Sleep(time.Until(began.Add(time.Duration(i+1) * 40 * time.Millisecond)))
	}
	return float64(used(w.t, pid)-before) / float64(time.Since(began))
}

// Rounds with and without a tab alternate, so that what the jobs cost is taken off.
func TestATabCostsTheServerLittle(t *testing.T) {
	suite.SkipUnlessLong(t)
	if os.Getenv("PODYARD_LONG") == "" {
		t.Skip("a measurement: it runs with PODYARD_LONG")
	}
	w, pid := program(t)
	b := browse(t)
	b.signIn(w, adminKey)
	w.load(pid) // the first round is for the caches
	for name, page := range map[string]string{"the overview": "", "an endpoint": "e/echo", "its jobs": "e/echo/jobs", "why its jobs wait": "e/echo/why"} {
		var shares []float64
		for range 3 {
			b.open("about:blank")
			without := w.load(pid)
			b.open(w.url + page)
			b.sees("Sign out")
			shares = append(shares, w.load(pid)-without)
			if n := eval[int](b, `performance.getEntriesByType('resource').filter(e => /\/console\/(api|data)\//.test(e.name)).length`); n < 3 {
				t.Errorf("the tab with %s has read %d times: it does not follow what happens", name, n)
			}
		}
		slices.Sort(shares)
		if t.Logf("a tab with %s costs the server %.1f %% of a core (%.1f to %.1f) at 50 events a second", name, 100*shares[1], 100*shares[0], 100*shares[2]); shares[1] > maxShare {
			t.Errorf("a tab with %s costs %.1f %% of a core, want at most %.0f %%", name, 100*shares[1], 100*maxShare)
		}
	}
}

// A first visit, with nothing kept by the browser.
func TestAFirstVisitIsSmallAndQuick(t *testing.T) {
	suite.SkipUnlessLong(t)
	if os.Getenv("PODYARD_LONG") == "" {
		t.Skip("a measurement: it runs with PODYARD_LONG")
	}
	w, _ := program(t)
	best, size := 1e9, 0
	for range 3 {
		b := browse(t)
		b.open(w.url)
		b.sees("Sign in with a key")
		best = min(best, eval[float64](b, `performance.getEntriesByName('first-contentful-paint')[0].startTime`))
		b.fill("input[type=password]", adminKey+"\r")
		b.sees("Needs attention")
		size = eval[int](b, `[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')].reduce((n, e) => n + e.transferSize, 0)`)
	}
	t.Logf("the first paint is after %.0f ms, and the overview took %d bytes over the wire", best, size)
	if best > maxPaint || size > maxLoaded {
		t.Errorf("first paint after %.0f ms and %d bytes, want %d ms and %d", best, size, maxPaint, maxLoaded)
	}
}

// The frames of a list of 10,000 jobs while it is scrolled and 50 others a second come.
func TestFramesOfAListThatIsScrolledStayShort(t *testing.T) {
	suite.SkipUnlessLong(t)
	if os.Getenv("PODYARD_LONG") == "" {
		t.Skip("a measurement: it runs with PODYARD_LONG")
	}
	w, b := start(t, setup{}), browse(t)
	w.queueUp(10_000)
	b.signIn(w, adminKey)
	b.goes(w, "e/idle/jobs")
	b.until(`document.querySelectorAll('.grid tbody tr[data-i]').length > 10`)
	b.press("Live")
	rest := b.frames(0, func() { time.Sleep(20 * time.Millisecond) })
	b.press("Paused")
	busy := b.frames(40, func() { w.queueUp(1); time.Sleep(20 * time.Millisecond) })
	p99 := func(list []float64) float64 { return list[int(.99*float64(len(list)-1))] }
	t.Logf("p99 of %d frames is %.1f ms, the median %.1f, while 50 jobs a second come; of %d frames of the page at rest %.1f and %.1f ms",
		len(busy), p99(busy), busy[len(busy)/2], len(rest), p99(rest), rest[len(rest)/2])
	if p99(busy) > max(maxFrame, 1.5*p99(rest)) { // other programs on the machine make frames late, too
		t.Errorf("99 of 100 frames take up to %.1f ms, want %d, or hardly more than the %.1f of a page at rest", p99(busy), maxFrame, p99(rest))
	}
	b.wantNoFaults()
}

// frames returns the times between the frames of a round, the shortest first, while the list is scrolled
// by step pixels a frame.
func (b *tab) frames(step int, meanwhile func()) []float64 {
	b.t.Helper()
	eval[bool](b, fmt.Sprintf(`(() => {
		const list = window.frameTimes = [], grid = document.querySelector('.grid')
		let last, step = %d
		const frame = at => {
			if (window.frameTimes !== list) return
			if (last) list.push(at - last)
			last = at
			if (grid.scrollTop < 50) step = Math.abs(step)
			else if (grid.scrollTop + grid.clientHeight + 50 > grid.scrollHeight) step = -Math.abs(step)
			grid.scrollTop += step
			requestAnimationFrame(frame)
		}
		requestAnimationFrame(frame)
		return true
	})()`, step))
	for began := time.Now(); time.Since(began) < eachRound; {
		meanwhile()
	}
	frames := eval[[]float64](b, `(() => { const list = window.frameTimes; window.frameTimes = null; return list })()`)
	if slices.Sort(frames); len(frames) < 50 {
		b.t.Fatalf("the page had %d frames in %v", len(frames), eachRound)
	}
	return frames
}

// queueUp adds jobs that wait, without HTTP.
func (w *world) queueUp(n int) {
	w.t.Helper()
	for range n {
		_, err := w.srv.Services().Jobs.Submit(w.t.Context(), "admin", "idle", serverless.Request{Input: []byte(`{}`)})
		check(w.t, err)
	}
}

// 100,000 jobs are counted, then cancelled; the user stops it on the way and goes on. Other calls are
// answered meanwhile.
func TestAHundredThousandJobsAreCancelledByThePage(t *testing.T) {
	suite.SkipUnlessLong(t)
	if os.Getenv("PODYARD_LONG") == "" {
		t.Skip("a measurement: it runs with PODYARD_LONG")
	}
	const n = 100_000
	w, b := start(t, setup{}), browse(t)
	w.queueUp(n)
	b.signIn(w, adminKey)
	b.goes(w, "e/idle/jobs?status=IN_QUEUE")
	b.until(`document.querySelectorAll('.grid tbody tr[data-i]').length > 10`)
	began := time.Now()
	b.press("Cancel…")
	b.seesIn("100,000 jobs that have not ended will be cancelled", time.Minute)
	counted := time.Since(began)
	b.press("Cancel 100,000 jobs")
	b.until(`document.querySelector('dialog progress')?.value > 3000`)
	b.press("Stop")
	b.sees("Stopped before the end.")
	b.press("Close")
	began = time.Now()
	b.press("Cancel…")
	b.until(`[...document.querySelectorAll('dialog button')].some(x => /^Cancel [0-9,]+ jobs$/.test(x.textContent))`)
	left := eval[string](b, `document.querySelector('dialog .preview').textContent`)
	b.press("Cancel " + left)
	var slowest time.Duration
	for over := false; !over; time.Sleep(10 * time.Millisecond) {
		called := time.Now()
		w.call("GET", "/v2/idle/health", "")
		slowest = max(slowest, time.Since(called))
		over = eval[bool](b, `!!document.querySelector('dialog .result')`)
		if time.Since(began) > 3*time.Minute {
			t.Fatal("the jobs are not cancelled after 3 minutes")
		}
	}
	b.sees(left + " were cancelled.")
	t.Logf("100,000 jobs: counted in %v, %s cancelled in %v; the slowest of the calls meanwhile took %v", counted, left, time.Since(began), slowest)
	b.press("Close")
	b.sees("No job has this status.")
	if h := string(w.call("GET", "/v2/idle/health", "")); !strings.Contains(h, `"inQueue":0`) {
		t.Errorf("the endpoint has %s, want no job that waits", h)
	}
	b.wantNoFaults()
}

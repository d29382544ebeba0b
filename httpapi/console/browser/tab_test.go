package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// patience is the longest wait for something on a slow machine.
const patience = 20 * time.Second

// A tab is a page of a browser.
type tab struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // chromedp keeps the tab in it
}

// browse starts a browser with one tab for the test. It skips the test where there is none.
func browse(t *testing.T) *tab {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	switch {
	case path == "" && os.Getenv("PODYARD_CI") == "1":
		t.Fatal("there is no Chromium: .ci/run --step prepare installs it")
	case path == "":
		t.Skip("there is no Chromium: the package chromium has it")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.Flag("no-sandbox", true), chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("lang", "en-GB"), chromedp.Flag("ignore-certificate-errors", true))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &tab{t, ctx}
	watch := `window.faults = []; addEventListener('error', e => faults.push(String(e.message))); addEventListener('unhandledrejection', e => faults.push('rejected: ' + e.reason)); addEventListener('securitypolicyviolation', e => faults.push('policy: ' + e.violatedDirective + ' ' + e.blockedURI + ' ' + e.sample))`
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watch})
		return err
	}))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the page at the end:\n%s", eval[string](b, `document.body.innerText.slice(0, 3000)`))
		}
	})
	return b
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	check(b.t, chromedp.Do(b.ctx, steps...))
}

// eval returns the value of an expression of the page.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Errorf("%s: %v", expression, err)
	}
	return v
}

func (b *tab) open(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url))
}

// until waits for a condition of the page.
func (b *tab) until(condition string) {
	b.t.Helper()
	b.untilIn(condition, patience)
}

func (b *tab) untilIn(condition string, d time.Duration) {
	b.t.Helper()
	for end := time.Now().Add(d); ; time.Sleep(25 * time.Millisecond) {
		ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("!!("+condition+")"))
		if err == nil && ok {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("it is never so: %s (%v)", condition, err)
		}
	}
}

func quote(s string) string {
	b, _ := json.Marshal(s) // a string
	return string(b)
}

// sees waits for a text on the page.
func (b *tab) sees(text string) {
	b.t.Helper()
	b.until(`document.body.innerText.includes(` + quote(text) + `)`)
}

func (b *tab) seesIn(text string, d time.Duration) {
	b.t.Helper()
	b.untilIn(`document.body.innerText.includes(`+quote(text)+`)`, d)
}

// press clicks the button or link with a text.
func (b *tab) press(text string) {
	b.t.Helper()
	find := `[...document.querySelectorAll('dialog[open] button, dialog[open] a, button, a, summary')].find(e => !e.disabled && e.textContent.trim() === ` + quote(text) + `)`
	if eval[bool](b, `!!document.querySelector('dialog[open]')`) {
		find = strings.Replace(find, ", button, a, summary", "", 1)
	}
	b.until(find)
	eval[bool](b, `(`+find+`.click(), true)`)
}

// fill types into a field.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	b.do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

func (b *tab) keys(keys string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys))
}

// signIn opens the console with a key.
func (b *tab) signIn(w *world, key string) {
	b.t.Helper()
	b.open(w.url)
	b.until(`document.querySelector('input[type=password]')`)
	b.fill("input[type=password]", key+"\r")
	b.sees("Sign out")
}

// goes changes the page as a link does.
func (b *tab) goes(w *world, path string) {
	b.t.Helper()
	eval[bool](b, fmt.Sprintf(`(history.pushState(null, '', %s), dispatchEvent(new PopStateEvent('popstate')), true)`, quote(strings.TrimPrefix(w.url, w.base)+path)))
}

// wantNoFaults fails the test if a script failed or the policy refused something.
func (b *tab) wantNoFaults() {
	b.t.Helper()
	for _, f := range eval[[]string](b, `window.faults`) {
		b.t.Errorf("the page: %s", f)
	}
}

func (b *tab) size(width, height int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
}

func (b *tab) theme(name string) {
	b.t.Helper()
	eval[bool](b, fmt.Sprintf(`(document.documentElement.dataset.theme = %q, true)`, name))
}

// picture keeps a picture of the page in the directory of PODYARD_PICTURES, if it is set.
func (b *tab) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("PODYARD_PICTURES")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	check(b.t, err)
	check(b.t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)) //nolint:gosec // a picture for the documentation
}

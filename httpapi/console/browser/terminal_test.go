package browser

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
)

// shells is a runtime in whose pods a terminal says its size, echoes what is typed in a colour of 24 bits,
// and ends with 7 at "q".
type shells struct{ *memory.Runtime }

// Exec implements pods.Executor.
func (r shells) Exec(ctx context.Context, pod string, c pods.Command, s pods.Streams) (int, error) {
	if !c.TTY {
		return r.Runtime.Exec(ctx, pod, c, s)
	}
	fmt.Fprintf(s.Stdout, "begins with %dx%d\r\n", c.Size.Columns, c.Size.Rows)
	never, end := io.Pipe()
	defer func() { _ = end.Close() }()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_, _ = r.Runtime.Exec(ctx, pod, pods.Command{Argv: []string{"cat"}}, pods.Streams{Stdin: never, Stdout: io.Discard, Stderr: io.Discard}) // until the pod ends
	}()
	typed := make(chan byte)
	go func() {
		defer close(typed)
		for b := make([]byte, 1); ; {
			if n, err := s.Stdin.Read(b); n == 0 || err != nil {
				return
			}
			select {
			case typed <- b[0]:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case e := <-s.Events:
			fmt.Fprintf(s.Stdout, "has now %dx%d\r\n", e.Size.Columns, e.Size.Rows)
		case b, ok := <-typed:
			if !ok || b == 'q' {
				return 7, nil
			}
			fmt.Fprintf(s.Stdout, "\x1b[38;2;255;120;0m<%c>\x1b[0m", b)
		case <-stopped:
			return 137, ctx.Err()
		}
	}
}

// types presses keys as a keyboard does: a character comes only of a key that the page leaves to the browser.
func (b *tab) types(text string) {
	b.t.Helper()
	for _, r := range text {
		events := kb.Encode(r) // down, character, up
		down, char, up := *events[0], *events[1], *events[2]
		down.Text, down.UnmodifiedText = char.Text, char.UnmodifiedText
		for _, e := range []input.DispatchKeyEventParams{down, up} {
			b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
				_, err := cdp.Call(ctx, t, input.DispatchKeyEvent, e)
				return err
			}))
		}
	}
}

const pod = `{"name":"notebook","image":"acme/jupyter:2","cpu":{"id":"cpu3c","vcpuCount":2}}`

// rows is the text of the terminal.
const rows = `(document.querySelector('.xterm-rows')?.innerText || '')`

func TestATerminalFollowsItsWindowAndSaysHowItEnded(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	b.size(1280, 900)
	b.signIn(w, adminKey)
	w.call("POST", "/v2/pods", pod)
	b.goes(w, "pods")
	b.press("notebook")
	b.sees("A login shell inside the pod")
	if loaded := eval[bool](b, `performance.getEntriesByType('resource').some(e => /xterm|terminal/.test(e.name))`); loaded {
		t.Error("the terminal is loaded before anybody asked for one")
	}
	b.press("Open a terminal")
	b.sees("Connected.")
	b.until(rows + `.includes('begins with ')`)
	size := `(` + rows + `.match(/(?:begins with|has now) (\d+x\d+)/g) || []).at(-1).split(' ').at(-1)`
	b.until(`document.activeElement?.closest('.shell')`)
	b.types("hi")
	b.until(rows + `.includes('<h><i>')`)
	if colour := eval[string](b, `getComputedStyle([...document.querySelectorAll('.xterm-rows span')].find(s => s.textContent.includes('<h>'))).color`); colour != "rgb(255, 120, 0)" {
		t.Errorf("text in a colour of 24 bits is %s", colour)
	}
	before := eval[string](b, size)
	b.size(700, 600)
	eval[bool](b, `(document.querySelector('.shell').scrollIntoView(), true)`) // xterm draws nothing that is out of sight
	b.until(size + ` !== ` + quote(before))
	b.until(`(() => { const [c, r] = (` + size + `).split('x').map(Number); return c > 20 && c < 100 && r > 5 && r === document.querySelector('.xterm-rows').children.length })()`)
	for _, theme := range []string{"light", "dark"} {
		b.theme(theme)
		b.wantAccessible("terminal-" + theme)
		b.picture("terminal-" + theme)
	}
	if text := eval[string](b, rows); strings.Count(text, "<h>") != 1 || strings.Count(text, "<i>") != 1 {
		t.Errorf("after two keys the terminal has %q", text)
	}
	b.types("q")
	b.sees("It ended: the command returned 7.")
	b.press("Open again")
	b.sees("Connected.")
	b.press("Close")
	b.until(`!document.querySelector('.shell')`)
	b.wantNoFaults()
}

func TestATerminalSaysWhyItEndedOrIsRefused(t *testing.T) {
	w, b := start(t, setup{}), browse(t)
	b.signIn(w, adminKey)
	w.call("POST", "/v2/pods", pod)
	b.goes(w, "pods")
	b.press("notebook")
	b.press("Open a terminal")
	b.sees("Connected.")
	id := eval[string](b, `location.pathname.split('/').at(-1)`)
	w.call("POST", "/v2/pods/"+id+"/action", `{"action":"stop"}`)
	b.sees("It ended: ")
	b.press("Close")
	b.until(`!document.body.innerText.includes('Open a terminal')`)
	if text := eval[string](b, `document.body.innerText`); strings.Contains(text, "Terminal") {
		t.Error("a pod that does not run has a terminal")
	}
	b.wantNoFaults()
}

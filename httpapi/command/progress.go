package command

import (
	"io"
	"sync"
	"time"
)

// progress shows on a terminal that something takes long, and for how long already, until the
// function that it returns is called.
func (c *Call) progress(what string) (done func()) {
	return Progress(c.Stderr, func() string { return what })
}

// Progress shows once a second on w, if that is a terminal, what text returns and how long it
// has taken, until the function that it returns is called. That removes the line.
func Progress(w io.Writer, text func() string) (done func()) {
	if !isTerminal(w) {
		return func() {}
	}
	began := time.Now()
	ended := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				put(w, "\r\x1b[K%s, %v", clean(text()), time.Since(began).Round(time.Second))
			case <-ended:
				put(w, "\r\x1b[K")
				return
			}
		}
	})
	return func() {
		close(ended)
		all.Wait()
	}
}

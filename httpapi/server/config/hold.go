package config

import (
	"context"
	"log/slog"
	"sync"
)

// A held is a handler that keeps lines below the level of errors until the start of the server was
// accepted. What is wrong with a start, such as a flag, is then said alone, and not below a
// paragraph about what this host cannot do.
type held struct {
	slog.Handler

	lines *heldLines
}

// heldLines are what handlers that were derived from one keep together.
type heldLines struct {
	mu       sync.Mutex
	released bool
	kept     []func() error
}

// maxHeld is how many lines a start may have. More are dropped.
const maxHeld = 1000

func hold(h slog.Handler) held { return held{h, &heldLines{}} }

// Handle implements slog.Handler.
func (h held) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelError && h.lines.keep(func() error { return h.Handler.Handle(context.WithoutCancel(ctx), r.Clone()) }) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// keep reports whether a line was kept.
func (l *heldLines) keep(line func() error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.released && len(l.kept) < maxHeld {
		l.kept = append(l.kept, line)
	}
	return !l.released
}

// WithAttrs implements slog.Handler.
func (h held) WithAttrs(attrs []slog.Attr) slog.Handler {
	return held{h.Handler.WithAttrs(attrs), h.lines}
}

// WithGroup implements slog.Handler.
func (h held) WithGroup(name string) slog.Handler { return held{h.Handler.WithGroup(name), h.lines} }

// release passes on what was kept, and from now on everything at once.
func (l *heldLines) release() {
	l.mu.Lock()
	kept := l.kept
	l.released, l.kept = true, nil
	l.mu.Unlock()
	for _, line := range kept {
		_ = line() // there is nobody to tell
	}
}

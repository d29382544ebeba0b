package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
)

func TestAHundredThousandLinesComeWithoutLoss(t *testing.T) {
	const n = 100_000
	rt := open(t, t.TempDir())
	ensure(t, rt, spec("chatty", program("print", fmt.Sprint(n))))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := 0
	for line, err := range rt.Logs(ctx, "chatty", pods.LogQuery{Tail: -1, Follow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if got++; line.Text != fmt.Sprintf("line %d", got) || line.Seq != uint64(got) {
			t.Fatalf("line %d is %+v", got, line)
		}
		if got == n {
			break
		}
	}
	if got != n {
		t.Errorf("%d lines, want %d", got, n)
	}
}

func TestSplitKeepsEveryByteAndNoRuneInTwo(t *testing.T) {
	long := strings.Repeat("ä", maxLine)
	for _, tt := range []struct {
		name string
		in   string
		all  bool
		want []string
		left string
	}{
		{"lines", "a\nb\n", false, []string{"a", "b"}, ""},
		{"an unfinished line waits", "a\nb", false, []string{"a"}, "b"},
		{"an unfinished line at the end is a line", "a\nb", true, []string{"a", "b"}, ""},
		{"an empty line", "\n\n", false, []string{"", ""}, ""},
		{"the end of a line on other systems", "a\r\nb\rc\r\n", false, []string{"a", "b\rc"}, ""},
		{"a long line", long + "\n", false, []string{long[:maxLine], long[maxLine:]}, ""},
		{"a long line between whose bytes the limit is", "x" + long + "\n", false,
			[]string{"x" + long[:maxLine-2], long[maxLine-2 : 2*maxLine-2], long[2*maxLine-2:]}, ""},
		{"as long as a line can be", long[:maxLine] + "\n", false, []string{long[:maxLine]}, ""},
		{"no text at all", strings.Repeat("\x80", maxLine+1), true, []string{strings.Repeat("\x80", maxLine), "\x80"}, ""},
		{"nothing", "", true, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			texts, ends := split([]byte(tt.in), 100, tt.all)
			var got []string
			for _, text := range texts {
				got = append(got, string(text))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
			left := tt.in
			if len(ends) > 0 {
				left = tt.in[ends[len(ends)-1]-100:]
			}
			if left != tt.left {
				t.Errorf("%d bytes are left, want %d", len(left), len(tt.left))
			}
		})
	}
}

// write appends n lines of the given size to an output.
func write(t *testing.T, o *output, from, n, size int) {
	t.Helper()
	for i := from; i < from+n; i++ {
		text := fmt.Appendf(nil, "line %d %s", i, strings.Repeat(".", size))
		if err := o.append(1, [][]byte{text}, []int64{int64(i * 10)}); err != nil {
			t.Fatal(err)
		}
		if err := o.trim(); err != nil {
			t.Fatal(err)
		}
	}
}

// A program that leaves its session, clears its environment and loses its parent is not found,
// and goes on writing.
func TestTheEndOfAPodDoesNotWaitForAWriterThatNeverCeases(t *testing.T) {
	dir := t.TempDir()
	o := newOutput(filepath.Join(dir, "log"), 256<<10)
	raw, err := openRaw(filepath.Join(dir, "raw"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(raw.Name(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	const ahead, limit = 1 << 20, 16 << 20
	piece := bytes.Repeat([]byte("escaped\n"), ahead/8)
	if _, err := w.Write(piece); err != nil {
		t.Fatal(err)
	}
	ended, over := make(chan struct{}), make(chan struct{})
	close(ended)
	go func() {
		defer close(over)
		tl := tail{out: o, raw: raw, log: slog.New(slog.DiscardHandler)}
		tl.run(ended)
	}()
	for written := int64(ahead); ; {
		select {
		case <-over:
			return
		default:
		}
		moved := o.position(0).offset
		if moved > limit {
			t.Errorf("%d bytes were moved after the end, want no more than were there", moved)
			break
		}
		if written-moved < ahead {
			n, err := w.Write(piece)
			if err != nil {
				t.Fatal(err)
			}
			written += int64(n)
		}
	}
	<-over
}

func TestLinesComeOnceAlthoughAnOldFileCannotBeRemoved(t *testing.T) {
	dir := t.TempDir()
	o := newOutput(filepath.Join(dir, "log"), 256<<10)
	raw, err := openRaw(filepath.Join(dir, "raw"))
	if err != nil {
		t.Fatal(err)
	}
	const before, lines = 100, 1000
	write(t, o, 1, before, 1000)
	oldest := o.path(o.files[0].first) // replaced by a directory below
	if err := errors.Join(os.Remove(oldest), os.MkdirAll(filepath.Join(oldest, "full"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := raw.WriteString(strings.Repeat(strings.Repeat(".", 1000)+"\n", lines)); err != nil {
		t.Fatal(err)
	}
	tl := tail{out: o, raw: raw, pos: position{start: 2}, log: slog.New(slog.DiscardHandler)}
	buf := make([]byte, tailBuffer)
	if _, err := tl.drain(buf, true); err == nil {
		t.Fatal("drain = nil, want that the oldest file cannot be removed")
	}
	if _, err := tl.drain(buf, true); err != nil {
		t.Fatal(err)
	}
	if want := uint64(before + lines + 1); o.next != want {
		t.Errorf("next line is %d, want %d: each comes once", o.next, want)
	}
}

func TestOutputIsBounded(t *testing.T) {
	const keep = 256 << 10
	o := newOutput(filepath.Join(t.TempDir(), "log"), keep)
	write(t, o, 1, 1000, 1000)
	var total int64
	entries, err := os.ReadDir(o.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if total > keep || total < keep/2 {
		t.Errorf("%d bytes are kept, want at most %d and not much less", total, keep)
	}
	if o.next != 1001 {
		t.Errorf("next line is %d, want 1001", o.next)
	}
}

func TestAReaderThatIsOvertakenGoesOnWithTheOldestLine(t *testing.T) {
	o := newOutput(filepath.Join(t.TempDir(), "log"), 256<<10)
	write(t, o, 1, 10, 1000)
	buf := make([]byte, readBuffer)
	c, _ := o.seek(pods.LogQuery{Tail: -1})
	_, c, err := o.read(c, buf)
	if err != nil {
		t.Fatal(err)
	}
	c.seq = 11
	write(t, o, 11, 1000, 1000)
	lines, _, err := o.read(c, buf)
	first, ok := parseFrame(lines[:bytes.IndexByte(lines, '\n')+1])
	if err != nil || !ok || first.seq != o.files[0].first || first.seq <= 11 {
		t.Errorf("read yields line %d, %v, want %d, the oldest", first.seq, err, o.files[0].first)
	}
}

func TestReadersPassFilesThatSomebodyRemoved(t *testing.T) {
	rt := open(t, t.TempDir(), func(o *Options) { o.LogSize = 256 << 10 })
	ensure(t, rt, spec("a", program("run")))
	await(t, rt, "a", "health", phase(pods.PhaseHealthy))
	o := rt.pods.Find("a").out
	write(t, o, 1, 100, 1000) // three files and more
	for _, f := range []logFile{o.files[1], o.files[len(o.files)-1]} {
		if err := os.Remove(o.path(f.first)); err != nil {
			t.Fatal(err)
		}
	}
	want := int(o.files[1].first-o.files[0].first) + int(o.files[len(o.files)-1].first-o.files[2].first)
	got := make(chan int, 1)
	go func() {
		n := 0
		for range rt.Logs(t.Context(), "a", pods.LogQuery{Tail: -1}) {
			n++
		}
		got <- n
	}()
	select {
	case n := <-got:
		if n != want {
			t.Errorf("%d lines are read, want the %d of the files that are there", n, want)
		}
	case <-time.After(time.Minute):
		t.Error("reading does not end where a file is missing")
	}
}

func TestLongLinesAndBytesThatAreNoTextArrive(t *testing.T) {
	rt := open(t, t.TempDir())
	script := `i=0; while [ $i -lt 2500 ]; do printf '\377234567890'; i=$((i+1)); done; printf '\nend\n'`
	ensure(t, rt, spec("long", pods.Spec{Image: "args", Args: []string{"/bin/sh", "-c", script}}))
	got := strings.Join(awaitLine(t, rt, "long", "end"), "")
	if want := strings.Repeat("\uFFFD234567890", 2500); got != want {
		t.Errorf("the line is %d bytes, want %d: %.60q", len(got), len(want), got)
	}
}

func TestOutputGoesOnWhereACrashLeftIt(t *testing.T) {
	const keep = 256 << 10
	for name, damage := range map[string]func(path string) error{
		"whole":              func(string) error { return nil },
		"a line cut short":   func(path string) error { return appendTo(path, "301 17") },
		"a line without end": func(path string) error { return appendTo(path, "301 1700000000000000000 1 3010 text") },
		"a file without lines": func(path string) error {
			return os.WriteFile(filepath.Join(filepath.Dir(path), fmt.Sprintf("%020d", 301)), nil, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutput(filepath.Join(t.TempDir(), "log"), keep)
			write(t, o, 1, 300, 500)
			if err := damage(o.path(o.files[len(o.files)-1].first)); err != nil {
				t.Fatal(err)
			}
			again := newOutput(o.dir, keep)
			if err := again.recover(); err != nil {
				t.Fatal(err)
			}
			if again.next != 301 || again.position(1).offset != 3000 || again.position(2).offset != 0 {
				t.Errorf("goes on with line %d at %+v, want 301 at 3000", again.next, again.pos)
			}
			if diff := cmp.Diff(o.files, again.files, cmp.AllowUnexported(logFile{})); diff != "" {
				t.Errorf("files (-before +after):\n%s", diff)
			}
			write(t, again, 301, 1, 500)
			c, _ := again.seek(pods.LogQuery{Tail: 2})
			lines, _, err := again.read(c, make([]byte, readBuffer))
			if err != nil || !bytes.Contains(lines, []byte(" line 301 ")) {
				t.Errorf("read yields %.80q, %v, want line 301 among it", lines, err)
			}
		})
	}
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	return f.Close()
}

func TestWhatWasMovedBeforeACrashIsNotMovedAgain(t *testing.T) {
	dir := t.TempDir()
	raw := filepath.Join(dir, "raw")
	if err := os.WriteFile(raw, []byte("one\ntwo\nthree"), 0o600); err != nil {
		t.Fatal(err)
	}
	move := func(all bool) *output {
		o := newOutput(filepath.Join(dir, "log"), 256<<10)
		if err := o.recover(); err != nil {
			t.Fatal(err)
		}
		f, err := openRaw(raw)
		if err != nil {
			t.Fatal(err)
		}
		tl := tail{out: o, raw: f, pos: o.position(1), log: slog.Default()}
		tl.pos.start = 1
		if !all {
			if _, err := tl.drain(make([]byte, tailBuffer), false); err != nil {
				t.Fatal(err)
			}
			return o
		}
		ended := make(chan struct{})
		close(ended)
		tl.run(ended)
		return o
	}
	if o := move(false); o.next != 3 {
		t.Fatalf("next line is %d, want 3", o.next)
	}
	if o := move(true); o.next != 4 {
		t.Errorf("next line is %d, want 4", o.next)
	}
	if _, err := os.Stat(raw); !os.IsNotExist(err) {
		t.Errorf("the raw file is left: %v", err)
	}
}

package supervise

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/podyard/podyard/pods"
)

// stored has a log store some output, and returns its lines.
func stored(t *testing.T, dir string, keep int64, output io.Reader) (texts []string) {
	t.Helper()
	l, err := openLines(dir, keep)
	if err != nil {
		t.Fatal(err)
	}
	l.copy(output)
	l.close()
	if l.lost > 0 {
		t.Errorf("%d lines are lost", l.lost)
	}
	return read(t, dir, pods.LogQuery{Tail: -1})
}

func read(t *testing.T, dir string, q pods.LogQuery) (texts []string) {
	t.Helper()
	r, err := Seek(dir, q)
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n > 0 && err == nil; {
		n, err = r.Read(func(line pods.LogLine, _ error) bool {
			texts = append(texts, line.Text)
			return true
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

func TestOutputBecomesLines(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for _, tt := range []struct {
		output string
		want   []string
	}{
		{"", nil},
		{"a\nb\r\n\nc", []string{"a", "b", "", "c"}},
		{long + "\n" + long + "y\n", []string{long, long, "y"}},
		{strings.Repeat("ä", maxLine/2+1), []string{strings.Repeat("ä", maxLine/2), "ä"}},
		{"\xff\n", []string{"\uFFFD"}},
	} {
		for _, size := range []int{1, 7, 1 << 20} { // of what a read returns
			got := stored(t, t.TempDir(), 1<<20, &pieces{[]byte(tt.output), size})
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", tt.want) {
				t.Errorf("%.40q is stored as %.80q, want %.80q", tt.output, got, tt.want)
			}
		}
	}
}

type pieces struct {
	left []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.left) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.size)], p.left)
	p.left = p.left[n:]
	return n, nil
}

func TestALogKeepsTheLatestLinesWithinItsSize(t *testing.T) {
	const keep, lines = 256 << 10, 20_000
	var out bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&out, "line %d\n", i)
	}
	for _, bad := range []string{strings.Repeat("\xff", 100_000), ""} { // grows threefold
		dir := t.TempDir()
		got := stored(t, dir, keep, io.MultiReader(strings.NewReader(bad), bytes.NewReader(out.Bytes())))
		if last := got[len(got)-1]; last != fmt.Sprintf("line %d", lines-1) {
			t.Errorf("the last line is %q", last)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var size int64
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			size += info.Size()
		}
		if size > keep || size < keep/2 {
			t.Errorf("the log has %d bytes, want at most %d and not much less", size, keep)
		}
		if tail := read(t, dir, pods.LogQuery{Tail: 3}); len(tail) != 3 {
			t.Errorf("the last 3 lines are %q", tail)
		}
	}
}

func TestALogGoesOnAfterALineThatWasCutOff(t *testing.T) {
	dir := t.TempDir()
	stored(t, dir, 1<<20, strings.NewReader("a\nb\n"))
	f, err := os.OpenFile(logPath(dir, 1), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("3 12345 half of a li")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, dir, 1<<20, strings.NewReader("c\n")); fmt.Sprint(got) != "[a b c]" {
		t.Errorf("the lines are %q, want a, b and c", got)
	}
	r, err := Seek(dir, pods.LogQuery{Tail: -1})
	if err != nil {
		t.Fatal(err)
	}
	want := uint64(1)
	if _, err := r.Read(func(l pods.LogLine, _ error) bool {
		if l.Seq != want {
			t.Errorf("line %q is number %d, want %d", l.Text, l.Seq, want)
		}
		want++
		return true
	}); err != nil {
		t.Fatal(err)
	}
}

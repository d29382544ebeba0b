package podstest

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
)

func logCases() []RuntimeCase {
	const n = 200
	return []RuntimeCase{{
		"LinesComeInOrder",
		"lines are yielded oldest first, with a growing Seq and a time that does not go back",
		func(t *testing.T, h Harness) {
			s := h.prints(t, n)
			lines := h.lines(t, s.PodID, pods.LogQuery{Tail: -1})
			if diff := cmp.Diff(numbered(1, n), texts(lines)); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
			for i := 1; i < len(lines); i++ {
				if lines[i].Seq <= lines[i-1].Seq || lines[i].At.Before(lines[i-1].At) {
					t.Fatalf("line %+v comes after %+v", lines[i], lines[i-1])
				}
			}
		},
	}, {
		"TailIsTheLastLines",
		"Tail yields the last lines; 0 none, -1 and more than there are all",
		func(t *testing.T, h Harness) {
			s := h.prints(t, n)
			for tail, want := range map[int][]string{0: nil, 1: numbered(n, n), 10: numbered(n-9, n), n: numbered(1, n), 2 * n: numbered(1, n)} {
				got := texts(h.lines(t, s.PodID, pods.LogQuery{Tail: tail}))
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("Tail %d (-want +got):\n%s", tail, diff)
				}
			}
		},
	}, {
		"AfterGoesOnWhereAReaderWas",
		"After and AfterSeq of any line yield exactly the lines that follow it; Tail counts among these",
		func(t *testing.T, h Harness) {
			s := h.prints(t, n)
			lines := h.lines(t, s.PodID, pods.LogQuery{Tail: -1})
			for _, i := range []int{0, 1, n / 2, n - 2, n - 1} {
				q := pods.LogQuery{After: lines[i].At, AfterSeq: lines[i].Seq, Tail: -1}
				if diff := cmp.Diff(texts(lines[i+1:]), texts(h.lines(t, s.PodID, q))); diff != "" {
					t.Errorf("after line %d (-want +got):\n%s", i+1, diff)
				}
			}
			q := pods.LogQuery{After: lines[9].At, AfterSeq: lines[9].Seq, Tail: 3}
			if diff := cmp.Diff(numbered(n-2, n), texts(h.lines(t, s.PodID, q))); diff != "" {
				t.Errorf("the last 3 after line 10 (-want +got):\n%s", diff)
			}
			q = pods.LogQuery{After: lines[n-3].At, AfterSeq: lines[n-3].Seq, Tail: 50}
			if diff := cmp.Diff(numbered(n-1, n), texts(h.lines(t, s.PodID, q))); diff != "" {
				t.Errorf("the last 50 after line %d (-want +got):\n%s", n-2, diff)
			}
		},
	}, {
		"FollowGetsEachLineOnceAndEndsWithThePod",
		"Follow yields what is there and then what comes, over an end and a new start, until the pod is removed",
		func(t *testing.T, h Harness) {
			s := h.prints(t, 3)
			got := make(chan string, 100)
			logs, _ := pods.As[pods.LogReader](h.Runtime)
			go func() {
				defer close(got)
				for line, err := range logs.Logs(t.Context(), s.PodID, pods.LogQuery{Tail: 2, Follow: true}) {
					if err != nil {
						t.Errorf("Logs yields %v", err)
					}
					got <- line.Text
				}
			}()
			want := append(numbered(2, 3), numbered(1, 3)...)
			have := h.receive(t, got, 2) // it follows now
			s.Run = 2
			h.up(t, s)
			have = append(have, h.receive(t, got, 3)...)
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("followed lines (-want +got):\n%s", diff)
			}
			h.remove(t, s.PodID)
			h.until(t, "for the follower to end with its pod", func() bool { return closed(t, got) })
		},
	}, {
		"FollowEndsWithItsContext",
		"a follower whose context ends stops, which is no error",
		func(t *testing.T, h Harness) {
			s := h.prints(t, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			got := make(chan string, 100)
			logs, _ := pods.As[pods.LogReader](h.Runtime)
			go func() {
				defer close(got)
				for line, err := range logs.Logs(ctx, s.PodID, pods.LogQuery{Tail: -1, Follow: true}) {
					if err != nil {
						t.Errorf("Logs yields %v, want no error", err)
					}
					got <- line.Text
				}
			}()
			h.receive(t, got, 1)
			cancel()
			h.until(t, "for the follower to end", func() bool { return closed(t, got) })
		},
	}, {
		"LinesEndWhereTheirReaderDoes",
		"a reader that has enough gets no more",
		func(t *testing.T, h Harness) {
			s := h.prints(t, n)
			logs, _ := pods.As[pods.LogReader](h.Runtime)
			got := 0
			for _, err := range logs.Logs(t.Context(), s.PodID, pods.LogQuery{Tail: -1, Follow: true}) {
				if err != nil {
					t.Fatalf("Logs yields %v", err)
				}
				if got++; got == 5 {
					break
				}
			}
			if got != 5 {
				t.Errorf("read %d lines, want 5", got)
			}
		},
	}}
}

// prints starts Programs.Prints and waits for its last line.
func (h Harness) prints(t *testing.T, n int) pods.Spec {
	t.Helper()
	if _, ok := pods.As[pods.LogReader](h.Runtime); !ok {
		t.Skip("this runtime keeps no output")
	}
	if h.Programs.Prints == nil {
		t.Skip("this runtime has no program that prints")
	}
	program := h.Programs.Prints(n)
	s := h.pod(t, &program)
	h.up(t, s)
	h.linesUntil(t, s.PodID, fmt.Sprintf("line %d", n), 1)
	return s
}

func (h Harness) lines(t *testing.T, id string, q pods.LogQuery) []pods.LogLine {
	t.Helper()
	logs, ok := pods.As[pods.LogReader](h.Runtime)
	if !ok {
		t.Skip("this runtime keeps no output")
	}
	var lines []pods.LogLine
	for line, err := range logs.Logs(t.Context(), id, q) {
		if err != nil {
			t.Fatalf("Logs yields %v", err)
		}
		lines = append(lines, line)
	}
	return lines
}

// linesUntil returns all lines once last is the last one and occurs times times.
func (h Harness) linesUntil(t *testing.T, id, last string, times int) []string {
	t.Helper()
	var got []string
	h.until(t, fmt.Sprintf("for line %q", last), func() bool {
		got = texts(h.lines(t, id, pods.LogQuery{Tail: -1}))
		n := 0
		for _, text := range got {
			if text == last {
				n++
			}
		}
		return n >= times && got[len(got)-1] == last
	})
	return got
}

// receive waits for n values.
func (h Harness) receive(t *testing.T, c <-chan string, n int) (got []string) {
	t.Helper()
	h.until(t, fmt.Sprintf("for %d more lines of a follower", n), func() bool {
		for len(got) < n {
			select {
			case s, ok := <-c:
				if !ok {
					t.Fatalf("the follower ended after %q", got)
				}
				got = append(got, s)
			default:
				return false
			}
		}
		return true
	})
	return got
}

// closed reports whether c is closed, and fails the test if there is another value.
func closed(t *testing.T, c <-chan string) bool {
	t.Helper()
	select {
	case s, ok := <-c:
		if ok {
			t.Errorf("the follower got %q, want the end", s)
		}
		return !ok
	default:
		return false
	}
}

func numbered(from, to int) (lines []string) {
	for i := from; i <= to; i++ {
		lines = append(lines, fmt.Sprintf("line %d", i))
	}
	return lines
}

func texts(lines []pods.LogLine) (texts []string) {
	for _, l := range lines {
		texts = append(texts, l.Text)
	}
	return texts
}

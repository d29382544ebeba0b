package faultplan_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/faultplan"
)

func all(int, *string) bool { return true }

// draws returns the results of n draws, with '.' for no fault.
func draws(p *faultplan.Plan[string], n int) string {
	var b strings.Builder
	for range n {
		f, ok := p.Draw(all)
		if !ok {
			f = "."
		}
		b.WriteString(f)
	}
	return b.String()
}

func planOf(seed uint64, rules ...faultplan.Rule[string]) *faultplan.Plan[string] {
	p := faultplan.New[string](seed)
	for _, r := range rules {
		p.Add(r)
	}
	return p
}

func TestTheFirstThatCouldHappens(t *testing.T) {
	p := planOf(1,
		faultplan.Rule[string]{Fault: "a", Skip: 2, Times: 2},
		faultplan.Rule[string]{Fault: "b", Times: 3},
		faultplan.Rule[string]{Fault: "c", Skip: 1, Off: true})
	if got, want := draws(p, 8), "bbaab..."; got != want {
		t.Errorf("draws = %s, want %s", got, want)
	}
	p.Turn(true, func(f *string) bool { return *f == "c" })
	if got, want := draws(p, 3), ".cc"; got != want {
		t.Errorf("draws once c is on = %s, want %s", got, want)
	}
}

// A rule that could not happen is neither skipped nor counted.
func TestOnlyWhatCouldHappenCounts(t *testing.T) {
	p := planOf(1, faultplan.Rule[string]{Fault: "a", Skip: 1, Times: 1})
	for range 3 {
		if f, ok := p.Draw(func(int, *string) bool { return false }); ok {
			t.Errorf("drew %q, which could not happen", f)
		}
	}
	if got, want := draws(p, 3), ".a."; got != want {
		t.Errorf("draws = %s, want %s", got, want)
	}
}

func TestASeedReplaysOdds(t *testing.T) {
	half := faultplan.Rule[string]{Fault: "x", Odds: 0.5}
	one := planOf(3, half)
	first := draws(one, 64)
	if n := strings.Count(first, "x"); n < 16 || n > 48 {
		t.Errorf("of 64 draws at odds of a half %d happened", n)
	}
	if diff := cmp.Diff(first, draws(planOf(3, half), 64)); diff != "" {
		t.Errorf("the same seed (-first +second):\n%s", diff)
	}
	one.Reseed(3)
	if diff := cmp.Diff(first, draws(one, 64)); diff != "" {
		t.Errorf("the same seed again (-first +second):\n%s", diff)
	}
	if draws(planOf(4, half), 64) == first {
		t.Error("two seeds give the same draws")
	}
	// A rule that always happens uses no random number.
	if diff := cmp.Diff("yyy"+first[:61], draws(planOf(3, faultplan.Rule[string]{Fault: "y", Times: 3, Odds: 1}, half), 64)); diff != "" {
		t.Errorf("behind a rule without odds (-want +got):\n%s", diff)
	}
}

func TestEntriesTellWhatHappenedAndCanBeRemoved(t *testing.T) {
	p := planOf(7, faultplan.Rule[string]{Fault: "a", Times: 1}, faultplan.Rule[string]{Fault: "b"})
	draws(p, 3)
	es := p.Entries()
	if len(es) != 2 || es[0].ID != 1 || es[0].Hits != 1 || !es[0].Spent() || es[1].ID != 2 || es[1].Hits != 2 || es[1].Spent() {
		t.Errorf("entries = %+v, want a spent after one and b after two", es)
	}
	if p.Remove(9) || !p.Remove(2) || p.Remove(2) {
		t.Error("Remove did not tell what is there")
	}
	if got := draws(p, 2); got != ".." {
		t.Errorf("draws = %s, want none: a is spent and b removed", got)
	}
	p.Reset(8)
	if id := p.Add(faultplan.Rule[string]{Fault: "c"}); id != 1 || p.Seed() != 8 || draws(p, 1) != "c" {
		t.Errorf("after Reset the first rule has id %d, the seed is %d", id, p.Seed())
	}
	p.Clear()
	if n := len(p.Entries()); n != 0 {
		t.Errorf("%d entries after Clear", n)
	}
}

func TestCountsHoldWithManyCallers(t *testing.T) {
	p := planOf(1, faultplan.Rule[string]{Fault: "a", Times: 10})
	var calls sync.WaitGroup
	hits := make(chan bool, 400)
	for range 4 {
		calls.Go(func() {
			for range 100 {
				_, ok := p.Draw(all)
				hits <- ok
			}
		})
	}
	calls.Wait()
	close(hits)
	n := 0
	for ok := range hits {
		if ok {
			n++
		}
	}
	if n != 10 {
		t.Errorf("it happened %d times, want 10", n)
	}
}

func TestLike(t *testing.T) {
	for _, row := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true},
		{"", "a", false},
		{"*", "", true},
		{"*", "anything", true},
		{"jobs.*", "jobs.Claim", true},
		{"jobs.*", "jobs", false},
		{"jobs.Claim", "jobs.Claim", true},
		{"jobs.Claim", "jobs.Claims", false},
		{"a*b*c", "a-b-b-c", true},
		{"a*b*c", "a-c", false},
		{"ab*ba", "aba", false},
		{"*b", "ab", true},
		{"a**b", "ab", true},
	} {
		if got := faultplan.Like(row.pattern, row.text); got != row.want {
			t.Errorf("Like(%q, %q) = %t, want %t", row.pattern, row.text, got, row.want)
		}
	}
}

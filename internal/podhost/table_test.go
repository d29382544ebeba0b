package podhost

import (
	"errors"
	"testing"
)

func TestAPodIsMadeOnceAndForgottenOnlyAsItself(t *testing.T) {
	var table Table[*int]
	made := 0
	ensure := func() (got *int) {
		t.Helper()
		err := table.Ensure("a", func(string) *int { made++; return new(int) }, func(p *int) error { got = p; return nil })
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := ensure()
	if again := ensure(); again != first || table.Find("a") != first || made != 1 {
		t.Errorf("a pod was made %d times, want once", made)
	}
	table.Forget("a", new(int))
	if table.Find("a") != first {
		t.Error("a pod was forgotten in the place of another of its id")
	}
	table.Forget("a", first)
	if table.Find("a") != nil || len(table.All()) != 0 {
		t.Error("the table has a pod that was forgotten")
	}
	if found, err := table.Call("a", func(*int) { t.Error("a pod that is not there was called") }); found || err != nil {
		t.Errorf("Call without the pod = %t, %v; want false and no error", found, err)
	}
}

func TestAClosedTableTakesNoMoreWorkAndKeepsItsPods(t *testing.T) {
	var table Table[*int]
	met := func(ids ...string) (n int, err error) {
		err = table.Meet(ids, func(string) *int { return new(int) }, func(string, *int) { n++ })
		return n, err
	}
	if n, err := met("a", "b"); n != 2 || err != nil {
		t.Errorf("of two pods %d were met, %v", n, err)
	}
	over := errors.New("it is over")
	if !table.Close(over) || table.Close(errors.New("another")) {
		t.Error("the first Close must report true, and no other")
	}
	never := func(*int) error { t.Error("a closed table has handed out a pod"); return nil }
	if err := table.Ensure("a", func(string) *int { return new(int) }, never); !errors.Is(err, over) {
		t.Errorf("Ensure after Close = %v, want its error", err)
	}
	if _, err := table.Call("a", func(p *int) { _ = never(p) }); !errors.Is(err, over) {
		t.Errorf("Call after Close = %v, want its error", err)
	}
	if n, err := met("a", "c"); n != 0 || !errors.Is(err, over) {
		t.Errorf("Meet after Close met %d pods and returned %v, want none and the error of Close", n, err)
	}
	if n := len(table.All()); n != 2 || !errors.Is(table.Closed(), over) {
		t.Errorf("a closed table has %d pods, want the two that it had", n)
	}
}

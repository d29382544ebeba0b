package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// life is every transition that there is: the event, the state after it, and the effects. What is
// not here cannot happen.
const life = `requested
    ask -> launching
    stop -> gone
    kill -> gone

launching
    ask -> launching
    accepted -> starting: useStart
    refused -> throttled: fail
    startFailed -> stopping: fail quick
    seenIdle -> idle
    seenBusy -> busy
    seenDraining -> draining
    unhealthy -> stopping: blame
    silent -> stopping: blame quick
    crashed -> failed: blame useEnd
    died -> lost: blame useEnd
    terminated -> ended: useEnd quick
    stop -> stopping
    kill -> stopping: quick

throttled
    again -> requested
    stop -> gone
    kill -> gone

starting
    seenIdle -> idle
    seenBusy -> busy
    seenDraining -> draining
    unhealthy -> stopping: blame
    silent -> stopping: blame quick
    crashed -> failed: blame useEnd
    died -> lost: blame useEnd
    terminated -> ended: useEnd quick
    stop -> stopping
    kill -> stopping: quick

idle
    accepted -> idle: useStart
    refused -> stopping: fail quick
    startFailed -> stopping: fail quick
    seenIdle -> idle
    seenBusy -> busy
    seenDraining -> draining
    unhealthy -> stopping: blame
    silent -> stopping: blame quick
    crashed -> failed: blame useEnd
    died -> lost: blame useEnd
    terminated -> ended: useEnd quick
    stop -> stopping
    kill -> stopping: quick

busy
    accepted -> busy: useStart
    refused -> stopping: fail quick
    startFailed -> stopping: fail quick
    seenIdle -> idle
    seenBusy -> busy
    seenDraining -> draining
    unhealthy -> stopping: blame
    silent -> stopping: blame quick
    crashed -> failed: blame useEnd
    died -> lost: blame useEnd
    terminated -> ended: useEnd quick
    stop -> stopping
    kill -> stopping: quick

draining
    accepted -> draining: useStart
    refused -> stopping: fail quick
    startFailed -> stopping: fail quick
    seenIdle -> draining: drain
    seenBusy -> draining: drain
    seenDraining -> draining
    unhealthy -> stopping: blame
    silent -> stopping: blame quick
    crashed -> failed: blame useEnd
    died -> lost: blame useEnd
    terminated -> ended: useEnd quick
    stop -> stopping
    kill -> stopping: quick

stopping
    accepted -> stopping: useStart
    refused -> gone: fail useEnd
    startFailed -> stopping: fail
    crashed -> ended: useEnd
    died -> ended: useEnd
    terminated -> ended: useEnd
    stop -> stopping
    kill -> stopping
    removed -> gone: useEnd

failed
    accepted -> failed
    refused -> failed
    startFailed -> failed
    stop -> failed
    kill -> failed
    reap -> ended: quick

lost
    accepted -> lost
    refused -> lost
    startFailed -> lost
    stop -> lost
    kill -> lost
    reap -> ended: quick

ended
    accepted -> ended
    refused -> ended
    startFailed -> ended
    stop -> ended
    kill -> ended
    removed -> gone

gone
    stop -> gone
    kill -> gone
`

var effectNames = []string{"fail", "blame", "drain", "useStart", "useEnd", "quick"}

func TestTableOfTransitionsIsTheLifeOfAWorker(t *testing.T) {
	var got []string
	for s := Requested; s <= Gone; s++ {
		got = append(got, "\n"+s.String())
		for e := range eventCount {
			to, do, ok := s.next(e)
			if !ok {
				if to != s || do != 0 {
					t.Errorf("%v cannot be in %v, and changes it to %v with effects %b", e, s, to, do)
				}
				continue
			}
			line := fmt.Sprintf("    %v -> %v", e, to)
			if names := named(do); len(names) > 0 {
				line += ": " + strings.Join(names, " ")
			}
			got = append(got, line)
		}
	}
	want := strings.TrimSpace(life)
	if diff := cmp.Diff(want, strings.TrimSpace(strings.Join(got, "\n"))); diff != "" {
		t.Errorf("transitions (-want +got):\n%s", diff)
	}
}

func named(do effect) (names []string) {
	for i, n := range effectNames {
		if do&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return names
}

// reachable is the states that events lead to from s.
func reachable(s State) (list []State) {
	list = []State{s}
	for i := 0; i < len(list); i++ {
		for e := range eventCount {
			if to, _, ok := list[i].next(e); ok && !slices.Contains(list, to) {
				list = append(list, to)
			}
		}
	}
	return list
}

func TestEveryWorkerCanEndAndNoneComesBack(t *testing.T) {
	for s := Requested; s <= Gone; s++ {
		if !slices.Contains(reachable(s), Gone) {
			t.Errorf("a worker that is %v never goes", s)
		}
	}
	for s := Stopping; s <= Gone; s++ {
		for _, to := range reachable(s) {
			if to < Stopping {
				t.Errorf("a worker that is %v becomes %v again", s, to)
			}
		}
	}
	if all := reachable(Requested); len(all) != int(Gone)+1 {
		t.Errorf("a new worker gets to %v only", all)
	}
}

// What a worker takes begins at most when the fleet accepts it, and has ended when nothing of it
// is there.
func TestUseEndsOnEveryWayOut(t *testing.T) {
	type place struct {
		state State
		using bool
	}
	list := []place{{Requested, false}}
	for i := 0; i < len(list); i++ {
		for e := range eventCount {
			to, do, ok := list[i].state.next(e)
			if !ok {
				continue
			}
			p := place{to, (list[i].using || do&doUseStart != 0) && do&doUseEnd == 0}
			if p.using && to.hasExited() {
				t.Errorf("%v after %v takes compute, and nothing of it runs", to, e)
			}
			if !slices.Contains(list, p) {
				list = append(list, p)
			}
		}
	}
}

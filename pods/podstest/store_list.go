package podstest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
)

func listCases() []StoreCase {
	return []StoreCase{{
		"ListIsInOrder",
		"List yields by Created, then ID",
		func(t *testing.T, s pods.PodStore) {
			create(t, s, minimalPod("c", "o", 0), minimalPod("b", "o", time.Hour), minimalPod("a", "o", time.Millisecond),
				minimalPod("d", "o", -100*365*24*time.Hour), minimalPod("aa", "o", 0))
			list(t, s, pods.Filter{}, "d", "aa", "c", "a", "b")
			list(t, s, pods.Filter{Owner: "o"}, "d", "aa", "c", "a", "b")
		},
	}, {
		"ListFilters",
		"a filter selects the pods of one owner, of one host, of both; an owner is not the beginning of another's name",
		func(t *testing.T, s pods.PodStore) {
			at := func(p *pods.Pod, host string) *pods.Pod { p.Placement.Host = host; return p }
			create(t, s, at(minimalPod("a", "u", 0), "h"), at(minimalPod("b", "u", 1e6), "h2"), at(minimalPod("c", "u2", 2e6), "h"), minimalPod("d", "u", 3e6))
			list(t, s, pods.Filter{}, "a", "b", "c", "d")
			list(t, s, pods.Filter{Owner: "u"}, "a", "b", "d")
			list(t, s, pods.Filter{Owner: "u2"}, "c")
			list(t, s, pods.Filter{Host: "h"}, "a", "c")
			list(t, s, pods.Filter{Owner: "u", Host: "h"}, "a")
			list(t, s, pods.Filter{Owner: "nobody"})
			list(t, s, pods.Filter{Host: "nowhere"})
		},
	}, {
		"ListFollowsChanges",
		"a pod that got a host is listed there, one that lost it is not, and one that was deleted is nowhere",
		func(t *testing.T, s pods.PodStore) {
			create(t, s, minimalPod("a", "u", 0), minimalPod("b", "u", 1e6))
			for _, host := range []string{"h", "h2", ""} {
				_, err := s.Update(t.Context(), "a", func(p *pods.Pod) error { p.Placement.Host = host; return nil })
				if err != nil {
					t.Fatal(err)
				}
				for _, at := range []string{"h", "h2"} {
					if at == host {
						list(t, s, pods.Filter{Host: at}, "a")
					} else {
						list(t, s, pods.Filter{Host: at})
					}
				}
				list(t, s, pods.Filter{Owner: "u"}, "a", "b")
			}
			if err := s.Delete(t.Context(), "a", nil); err != nil {
				t.Fatal(err)
			}
			list(t, s, pods.Filter{}, "b")
			list(t, s, pods.Filter{Owner: "u"}, "b")
		},
	}, {
		"ListEndsWithItsReader",
		"a reader that has enough gets no more, and may change pods while it reads",
		func(t *testing.T, s pods.PodStore) {
			for i := range 5 {
				create(t, s, minimalPod(fmt.Sprint(i), "u", time.Duration(i)*time.Millisecond))
			}
			n := 0
			for p, err := range s.List(t.Context(), pods.Filter{}) {
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Update(t.Context(), p.ID, func(p *pods.Pod) error { p.Name = "read"; return nil }); err != nil {
					t.Fatalf("Update within List = %v, want nil", err)
				}
				if n++; n == 3 {
					break
				}
			}
			if n != 3 {
				t.Errorf("read %d pods, want 3", n)
			}
		},
	}}
}

func list(t *testing.T, s pods.PodStore, f pods.Filter, want ...string) {
	t.Helper()
	var got []string
	for p, err := range s.List(t.Context(), f) {
		if err != nil {
			t.Fatalf("List(%+v) yields %v", f, err)
		}
		got = append(got, p.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("List(%+v) (-want +got):\n%s", f, diff)
	}
}

package docker

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestNamesOfImagesHaveARegistryAndNoIDs(t *testing.T) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	for text, want := range map[string]string{
		"nginx":                         "docker.io/library/nginx:latest",
		"team/app:2":                    "docker.io/team/app:2",
		"registry.test:5000/a/b":        "registry.test:5000/a/b:latest",
		"registry.test/app@" + digest:   "registry.test/app@" + digest,
		"registry.test/app:1@" + digest: "registry.test/app@" + digest,
		"abcdef123456":                  "docker.io/library/abcdef123456:latest",
		digest:                          "",
		"sha256:abcdef":                 "",
		strings.Repeat("ab", 32):        "",
		"UPPER":                         "",
		"../app":                        "",
	} {
		got, err := parseImage(text)
		if got.full != want || (err == nil) != (want != "") {
			t.Errorf("parseImage(%q) = %q, %v; want %q", text, got.full, err, want)
		}
	}
}

func TestPatternsOfLocalImages(t *testing.T) {
	for _, c := range []struct {
		pattern, image string
		want           bool
	}{
		{"mine", "mine", true},
		{"mine", "mine:2", true},
		{"mine:2", "mine:2", true},
		{"mine:2", "mine:3", false},
		{"mine", "others/mine", false},
		{"docker.io/library/mine", "mine", true},
		{"team/*", "team/a/b:1", true},
		{"team/*", "team2/a", false},
		{"*", "registry.test/x:1", true},
		{"*:dev", "registry.test/x:dev", true},
		{"*:dev", "registry.test/x:dev2", false},
		{"a*b*c", "axbxc:1", true},
		{"a*b*c:1", "axbxc:1", true},
		{"a*b*b:1", "ab:1", false},
		{"registry.test:5000/app", "registry.test:5000/app:7", true},
	} {
		n, err := parseImage(c.image)
		if err != nil {
			t.Fatal(err)
		}
		if got := imagePattern(c.pattern).matches(n); got != c.want {
			t.Errorf("%q has %q: %v, want %v", c.pattern, c.image, got, c.want)
		}
	}
	for _, bad := range []string{"", "a b", "sha256:abc", strings.Repeat("ab", 32)} {
		if CheckLocalImage(bad) == nil {
			t.Errorf("CheckLocalImage(%q) = nil, want an error", bad)
		}
	}
}

func TestWhatARegistryGaveIsRememberedForATimeAndForSoManyOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newPermits(time.Minute)
		first := permit{"alice", "a"}
		table.grant(first)
		if !table.has(first) || table.has(permit{"bob", "a"}) || table.has(permit{"alice", "b"}) {
			t.Error("a grant is not that of one owner and image")
		}
		time.Sleep(time.Second)
		const more = maxPermits + 8
		for i := range more {
			table.grant(permit{fmt.Sprint(i), "a"})
		}
		if len(table.granted) > maxPermits || table.has(first) || !table.has(permit{fmt.Sprint(more - 1), "a"}) {
			t.Errorf("%d grants are remembered, want the latest %d", len(table.granted), maxPermits)
		}
		last := permit{fmt.Sprint(more - 1), "a"}
		time.Sleep(time.Minute)
		if table.has(last) {
			t.Error("a grant is remembered for longer than its time")
		}
		table.grant(last)
		table.revoke(last)
		if table.has(last) {
			t.Error("a grant that was revoked is remembered")
		}
	})
}

func TestOneRequestToARegistryAtATimeForAnOwnerAndImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, p := newPermits(time.Minute), permit{"alice", "a"}
		done, err := table.acquire(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan func())
		go func() {
			done, err := table.acquire(t.Context(), p)
			if err != nil {
				t.Error(err)
			}
			second <- done
		}()
		synctest.Wait()
		select {
		case <-second:
			t.Error("two ask at once")
		default:
		}
		other, err := table.acquire(t.Context(), permit{"bob", "a"})
		if err != nil {
			t.Fatal(err)
		}
		other()
		done()
		(<-second)()
		if len(table.asking) != 0 {
			t.Errorf("%d requests are remembered after their end", len(table.asking))
		}
	})
}

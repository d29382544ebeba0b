package docker

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/internal/enginetest"
	"github.com/podyard/podyard/pods"
)

// fails runs a pod that must fail, and returns the reason.
func fails(t *testing.T, rt *Runtime, s pods.Spec) string {
	t.Helper()
	ensure(t, rt, s)
	got := await(t, rt, s.PodID, "failure", func(s pods.ContainerState) bool { return s.Phase >= pods.PhaseHealthy })
	if got.Phase != pods.PhaseFailed {
		t.Fatalf("pod of %s with image %s is %+v, want it to fail", s.Owner, s.Image, got)
	}
	return got.Reason
}

func TestAnImageOnTheHostIsOnlyForThoseToWhomItsRegistryGivesIt(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		registry := newPrivateRegistry(t)
		image := registry.push(t, "shared:1")
		of := func(id, owner string, c pods.Credential) pods.Spec {
			s := spec(id, program("run"))
			s.Owner, s.Image, s.Credential = owner, image, c
			return s
		}
		right := pods.Credential{Username: registryUser, Password: registryPassword}
		rt := open(t, d, t.TempDir(), func(o *Options) {
			o.Trusted = func(owner string) bool { return owner == "operator" }
		})
		up(t, rt, of("first", "alice", right))
		for id, c := range map[string]pods.Credential{"anonymous": {}, "guessing": {Username: registryUser, Password: "guess"}} {
			if why := fails(t, rt, of(id, "bob", c)); !strings.Contains(why, "cannot be pulled") {
				t.Errorf("%s: Reason = %q, want that the image cannot be pulled", id, why)
			}
		}
		up(t, rt, of("trusted", "operator", pods.Credential{}))
		// The registry's permit for alice is remembered, for her only.
		before := registry.granted.Load()
		up(t, rt, of("second", "alice", right))
		if after := registry.granted.Load(); after != before {
			t.Errorf("the registry was asked %d times again", after-before)
		}
		fails(t, rt, of("third", "bob", pods.Credential{}))
		up(t, rt, of("granted", "bob", right))
		// With a negative ImageRecheck every start asks the registry.
		forgetful := open(t, d, t.TempDir(), func(o *Options) { o.ImageRecheck = -1 })
		up(t, forgetful, of("one", "alice", right))
		fails(t, forgetful, of("two", "alice", pods.Credential{}))
	})
}

func TestAnImageOfARegistryThatIsDownIsNotUsed(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		registry := newPrivateRegistry(t)
		s := spec("one", program("run"))
		s.Image, s.Credential = registry.push(t, "down:1"), pods.Credential{Username: registryUser, Password: registryPassword}
		rt := open(t, d, t.TempDir(), func(o *Options) { o.ImageRecheck = -1 })
		up(t, rt, s)
		registry.Close()
		s.PodID = "two"
		if why := fails(t, rt, s); !strings.Contains(why, "refused") {
			t.Errorf("Reason = %q, want that the registry does not answer", why)
		}
	})
}

func TestAPullIsTriedAgainWhileItsRegistryIsBusyAndThePodSaysSo(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		for id, status := range map[string]int{"restarting": http.StatusServiceUnavailable, "flooded": http.StatusTooManyRequests} {
			if strings.HasPrefix(d.Kind, "podman") && status == http.StatusTooManyRequests {
				continue // Podman itself tries again, for minutes
			}
			registry := newPrivateRegistry(t)
			s := spec(id, program("run"))
			s.Image, s.Credential = registry.push(t, id+":1"), pods.Credential{Username: registryUser, Password: registryPassword}
			registry.busy.Store(int32(status))
			rt := open(t, d, t.TempDir())
			ensure(t, rt, s)
			got := await(t, rt, id, "pull that failed", func(s pods.ContainerState) bool { return s.Reason != "" })
			if got.Phase != pods.PhasePulling || !strings.Contains(got.Reason, "try 1") || !strings.Contains(got.Reason, "next try in") {
				t.Errorf("pod is %+v after a %d of its registry, want it to pull again and to say so", got, status)
			}
			registry.busy.Store(0)
			await(t, rt, id, "health", phase(pods.PhaseHealthy))
		}
	})
}

func TestTheProgressOfAPullIsTold(t *testing.T) {
	at := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	var p pullProgress
	var told []string
	for _, m := range []struct {
		id, status string
		after      time.Duration
	}{
		{"1.0", "Pulling from library/busybox", 0},
		{"a", "Already exists", 0},
		{"b", "Pulling fs layer", 0},
		{"c", "Waiting", 0},
		{"b", "Downloading", 11 * time.Second},
		{"b", "Pull complete", 12 * time.Second},
		{"c", "Downloading", 22 * time.Second},
	} {
		if text := p.add(jsonstream.Message{ID: m.id, Status: m.status}, at.Add(m.after)); text != "" {
			told = append(told, text)
		}
	}
	want := []string{"pulling the image: 1 of 3 layers are there", "pulling the image: 2 of 3 layers are there"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q: not more than each 10 s", told, want)
	}
}

func TestNoIDAndNoPartOfANameFindsAnImageOnTheHost(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		rt := open(t, d, t.TempDir(), func(o *Options) {
			o.Trusted = func(string) bool { return true } // even trusted owners may not use ids
		})
		found, err := rt.api.ImageInspect(t.Context(), plain)
		if err != nil {
			t.Fatal(err)
		}
		hex := strings.TrimPrefix(found.ID, "sha256:")
		for id, image := range map[string]string{
			"digest": "sha256:" + hex, "short-digest": "sha256:" + hex[:12], "hex": hex, "short": hex[:12], "suffix": "program:1",
		} {
			s := spec(id, program("run"))
			s.Image = image
			why := fails(t, rt, s)
			if id != "short" && id != "suffix" && !strings.Contains(why, "id of an image") {
				t.Errorf("%s: Reason = %q, want that it is an id", image, why)
			}
		}
		if _, err := rt.api.ImageTag(t.Context(), client.ImageTagOptions{Source: plain, Target: "podyard-built-here:1"}); err != nil {
			t.Fatal(err)
		}
		s := spec("built", program("run"))
		s.Image = "podyard-built-here:1"
		up(t, rt, s)
	})
}

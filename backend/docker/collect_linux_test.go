package docker

import (
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/internal/enginetest"
	"github.com/podyard/podyard/pods"
)

// variant is the plain image with another id.
func variant(t *testing.T, name string) v1.Image {
	t.Helper()
	all, err := images()
	if err != nil {
		t.Fatal(err)
	}
	img, err := enginetest.Configure(all[plain], func(c *v1.ConfigFile) { c.Config.Labels = map[string]string{"variant": t.Name() + name} })
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestImagesThatNobodyUsesAreRemoved(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		registry, dir := newPrivateRegistry(t), t.TempDir()
		local := func(o *Options) { o.LocalImages = []string{"podyard.test/*", registry.host() + "/kept"} }
		rt := open(t, d, dir, local)
		names := map[string]string{}
		right := pods.Credential{Username: registryUser, Password: registryPassword}
		pull := func(id string) {
			t.Helper()
			s := spec(id, program("run"))
			s.Image, s.Credential = names[id], right
			up(t, rt, s)
			if id != "used" {
				if err := rt.Remove(t.Context(), id, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, id := range []string{"used", "first", "second", "kept", "foreign"} {
			names[id] = registry.pushImage(t, id+":1", variant(t, id))
		}
		auth, err := authHeader(names["foreign"], right)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := rt.api.ImagePull(t.Context(), names["foreign"], client.ImagePullOptions{RegistryAuth: auth})
		if err == nil {
			err = stream.Wait(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"used", "first", "second", "kept", "foreign"} {
			pull(id)
		}
		there := func(ids ...string) {
			t.Helper()
			want := map[string]bool{}
			for _, id := range ids {
				want[id] = true
			}
			for id, name := range names {
				found, err := rt.findImage(t.Context(), name)
				if err != nil || (found != nil) != want[id] {
					t.Errorf("image %s is there: %v, %v; want %v", id, found != nil, err, want[id])
				}
			}
		}
		collect := func(after time.Duration, low func() bool) {
			t.Helper()
			if err := rt.collectImages(t.Context(), time.Now().Add(after), low); err != nil {
				t.Fatal(err)
			}
		}
		enough := func() bool { return false }
		collect(13*24*time.Hour, enough)
		collect(time.Minute, func() bool { return true }) // used within keepUsed
		there("used", "first", "second", "kept", "foreign")
		looks := 0
		collect(time.Hour, func() bool { looks++; return looks == 1 })
		there("used", "second", "kept", "foreign")
		// A second Runtime reads the list of pulled images.
		if err := rt.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		rt = open(t, d, dir, local)
		collect(15*24*time.Hour, enough)
		there("used", "kept", "foreign")
		// The tag moves to a new image: only the old image is old enough.
		if err := rt.Remove(t.Context(), "used", 0); err != nil {
			t.Fatal(err)
		}
		old, err := rt.findImage(t.Context(), names["used"])
		if err != nil || old == nil {
			t.Fatalf("image = %v, %v", old, err)
		}
		registry.pushImage(t, "used:1", variant(t, "moved"))
		rt.permits.revoke(permit{"user", names["used"]})
		pull("used")
		collect(40*24*time.Hour, enough) // the touch above saw it in use at 15 days
		if found, err := rt.api.ImageInspect(t.Context(), old.ID); err == nil {
			t.Errorf("the image whose tag was moved is there: %v", found.ID)
		}
		there("used", "kept", "foreign")
	})
}

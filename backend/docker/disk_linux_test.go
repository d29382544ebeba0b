package docker

import (
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/enginetest"
	"github.com/podyard/podyard/pods"
)

// Most storage drivers accept a size and ignore it, or refuse it.
func TestAContainerThatHasMoreThanItsDiskIsEnded(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		rt := open(t, d, t.TempDir(), func(o *Options) { o.diskCheck = 100 * time.Millisecond })
		if rt.engine.diskLimit {
			t.Skip("this engine enforces the size of a disk")
		}
		start := func(id, image, path string, megabytes string) {
			s := spec(id, pods.Spec{Image: image, Args: []string{"fill", path, megabytes}})
			s.Disk = 1
			ensure(t, rt, s)
		}
		start("little", plain, "/file", "100")
		start("much", plain, "/file", "1100")
		start("declared", volume, "/kept/file", "1100")
		for _, id := range []string{"much", "declared"} {
			s := await(t, rt, id, "end", func(s pods.ContainerState) bool { return s.Phase >= pods.PhaseExited })
			if s.Phase != pods.PhaseFailed || !strings.HasPrefix(s.Reason, "its disk is full: it holds 1") || !strings.HasSuffix(s.Reason, "1024 MB is the limit") {
				t.Errorf("a pod with 1100 MB on a disk of 1 GB = %v %q, want that its disk is full", s.Phase, s.Reason)
			}
			c, err := rt.pods.Find(id).inspect(t.Context())
			if err != nil || c == nil || c.State.Running {
				t.Errorf("its container runs: %+v, %v", c, err)
			}
		}
		if s, _ := rt.pods.Find("little").currentState(); s.Phase != pods.PhaseHealthy {
			t.Errorf("a pod with 100 MB = %v %q, want that it runs", s.Phase, s.Reason)
		}

		// Its disk is as full at the next start.
		again := spec("much", pods.Spec{Image: plain, Args: []string{"fill", "/file", "1100"}})
		again.Disk, again.Run = 1, 2
		ensure(t, rt, again)
		s := await(t, rt, "much", "end", func(s pods.ContainerState) bool { return s.Run == 2 && s.Phase >= pods.PhaseExited })
		if s.Phase != pods.PhaseFailed || !strings.HasPrefix(s.Reason, "its disk is full") {
			t.Errorf("a pod that starts again with a full disk = %v %q", s.Phase, s.Reason)
		}
	})
}

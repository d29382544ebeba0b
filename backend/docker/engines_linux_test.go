package docker

import (
	"os"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/podyard/podyard/internal/enginetest"
	"github.com/podyard/podyard/internal/suite"
)

// The images of the tests. plain has a program. checked also has a health check. setuid has
// a user other than root and a program that is setuid root. volume declares a volume.
const (
	plain   = "podyard.test/program:1"
	checked = "podyard.test/checked:1"
	setuid  = "podyard.test/setuid:1"
	volume  = "podyard.test/volume:1"
	nowhere = "127.0.0.1:9/no/such:image"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }

// forEachEngine runs a slow test on every engine: only the cases of TestRuntime are quick.
func forEachEngine(t *testing.T, f func(t *testing.T, d *enginetest.Engine)) {
	t.Helper()
	suite.SkipUnlessLong(t)
	alsoQuickly(t, f)
}

// alsoQuickly runs a test on every engine, in parallel with others, because the tests mostly
// wait for engines. A test that changes an engine runs alone, before these.
func alsoQuickly(t *testing.T, f func(t *testing.T, d *enginetest.Engine)) {
	t.Helper()
	t.Parallel()
	for _, kind := range enginetest.Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f(t, requireEngine(t, kind))
		})
	}
}

// withEngine runs a slow test on every engine, and no other test in parallel: such a test
// changes what all tests share, for example the CDI specifications of this machine.
func withEngine(t *testing.T, f func(t *testing.T, d *enginetest.Engine)) {
	t.Helper()
	suite.SkipUnlessLong(t)
	for _, kind := range enginetest.Kinds {
		t.Run(kind, func(t *testing.T) { f(t, requireEngine(t, kind)) })
	}
}

// requireEngine returns an engine with the test images.
func requireEngine(t testing.TB, kind string) *enginetest.Engine {
	t.Helper()
	d := enginetest.Require(t, kind)
	all, err := images()
	if err != nil {
		t.Fatal(err)
	}
	for ref, img := range all {
		d.LoadImage(t, ref, img)
	}
	return d
}

// images are built from the program in testdata.
var images = sync.OnceValues(func() (map[string]v1.Image, error) {
	img, err := enginetest.Image("./testdata/program")
	if err != nil {
		return nil, err
	}
	healthy, err := enginetest.Configure(img, func(c *v1.ConfigFile) {
		c.Config.Healthcheck = &v1.HealthConfig{Test: []string{"CMD", "/program", "deaf"}, Interval: 200 * time.Millisecond, Retries: 100}
	})
	if err != nil {
		return nil, err
	}
	declares, err := enginetest.Configure(img, func(c *v1.ConfigFile) { c.Config.Volumes = map[string]struct{}{"/kept": {}} })
	if err != nil {
		return nil, err
	}
	climber, err := enginetest.SetuidImage("./testdata/program")
	if err != nil {
		return nil, err
	}
	climber, err = enginetest.Configure(climber, func(c *v1.ConfigFile) { c.Config.User = "1000" })
	return map[string]v1.Image{plain: img, checked: healthy, setuid: climber, volume: declares}, err
})

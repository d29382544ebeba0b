package disk

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/podstest"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/registries/registriestest"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/serverlesstest"
)

var testKey = []byte("0123456789abcdef0123456789abcdef")

// inMemory returns options for a store in a file system in memory.
func inMemory(fs vfs.FS) *Options {
	return &Options{fs: fs, Key: testKey, Ballast: -1}
}

// openForTest opens a store and closes it at the end of the test.
func openForTest(t testing.TB, dir string, opts *Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir, opts)
	if err != nil {
		t.Fatalf("Open(%q): %v", dir, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func memStore(t testing.TB) *Store {
	t.Helper()
	return openForTest(t, "store", inMemory(vfs.NewMem()))
}

func TestPods(t *testing.T) {
	podstest.TestStore(t, func(t *testing.T) pods.PodStore { return memStore(t).Pods() })
}

func TestRegistries(t *testing.T) {
	registriestest.TestStore(t, func(t *testing.T) registries.Store { return memStore(t).Registries() })
}

func TestEndpoints(t *testing.T) {
	serverlesstest.TestEndpointStore(t, func(t *testing.T) endpoints.Store { return memStore(t).Endpoints() })
}

func TestJobs(t *testing.T) {
	serverlesstest.TestJobQueue(t, func(t *testing.T) queue.JobQueue { return memStore(t).Jobs() })
}

// The ledger of the crash tests agrees with the rules of the queue.
func TestTheLedgerAgreesWithTheRules(t *testing.T) {
	suite.SkipUnlessLong(t)
	for _, c := range serverlesstest.QueueCases() {
		t.Run(c.Name, func(t *testing.T) {
			l := serverlesstest.NewLedger(memStore(t).Jobs())
			c.Run(t, l)
			if err := l.Err(); err != nil && !t.Failed() {
				t.Error(err)
			}
		})
	}
}

// The queue tests on the file system of this machine.
func TestOnRealFiles(t *testing.T) {
	suite.SkipUnlessLong(t)
	onFiles := func(t *testing.T) *Store {
		return openForTest(t, t.TempDir(), &Options{Key: testKey, Ballast: 1 << 20})
	}
	t.Run("Pods", func(t *testing.T) {
		podstest.TestStore(t, func(t *testing.T) pods.PodStore { return onFiles(t).Pods() })
	})
	t.Run("Jobs", func(t *testing.T) {
		for i, c := range serverlesstest.QueueCases() {
			if i%8 != 0 && longTime() == 0 {
				continue // the others run in memory, and here only with PODYARD_LONG
			}
			t.Run(c.Name, func(t *testing.T) { c.Run(t, onFiles(t).Jobs()) })
		}
	})
}

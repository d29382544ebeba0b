package disk

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/podyard/podyard/serverless/queue"
)

// Whoever submits, the payloads that are in memory for their tables have 16 MiB, or are one.
func TestLargePayloadsBecomeTablesFewAtATime(t *testing.T) {
	for size, want := range map[int]int{9 << 20: 1, 5 << 20: 3} {
		t.Run(fmt.Sprint(size>>20), func(t *testing.T) {
			var mu sync.Mutex
			now, most := 0, 0
			count := func(n int) {
				mu.Lock()
				defer mu.Unlock()
				now += n
				most = max(most, now)
			}
			fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				if !strings.Contains(op.Path, stagePrefix) {
					return nil
				}
				switch op.Kind {
				case errorfs.OpCreate:
					count(1)
				case errorfs.OpFileSync, errorfs.OpFileSyncData: // once, at the end
					count(-1)
				}
				return nil
			}))
			s := openForTest(t, "store", inMemory(fs))
			var users sync.WaitGroup
			for n := range 8 {
				users.Go(func() {
					j := newJob(fmt.Sprint(n))
					j.Owner, j.Endpoint, j.Input = fmt.Sprint("user", n), fmt.Sprint("e", n), make([]byte, size)
					if err := s.Jobs().Enqueue(t.Context(), []queue.Job{j}); err != nil {
						t.Error(err)
					}
				})
			}
			users.Wait()
			if now != 0 || most == 0 || most > want {
				t.Errorf("%d tables of %d MB were written at once, %d are not synced, want %d at most", most, size>>20, now, want)
			}
		})
	}
}

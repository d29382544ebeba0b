package podhost

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestJobsOfAQueueRunOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var work sync.WaitGroup
		q := Queue{Go: work.Go}
		var order []string
		q.Do(func() {
			time.Sleep(time.Second)
			order = append(order, "first")
			q.Do(func() { order = append(order, "third") })
		})
		q.Do(func() { order = append(order, "second") })
		work.Wait()
		if diff := cmp.Diff([]string{"first", "second", "third"}, order); diff != "" {
			t.Errorf("jobs (-want +got):\n%s", diff)
		}
	})
}

func TestQueuesDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var work sync.WaitGroup
		began := time.Now()
		for range 3 {
			q := Queue{Go: work.Go}
			q.Do(func() { time.Sleep(time.Minute) })
		}
		work.Wait()
		if d := time.Since(began); d != time.Minute {
			t.Errorf("three jobs of a minute took %v, want one minute", d)
		}
	})
}

func TestAGoroutineOfAQueueEndsWithItsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var work sync.WaitGroup
		started := 0
		q := Queue{Go: func(run func()) { started++; work.Go(run) }}
		for range 2 {
			q.Do(func() { time.Sleep(time.Second) })
			q.Do(func() {})
			work.Wait()
		}
		if started != 2 {
			t.Errorf("%d goroutines were started, want one for each time there was work", started)
		}
	})
}

func TestTryDoAddsNothingToAQueueAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var work sync.WaitGroup
		q := Queue{Go: work.Go}
		q.Do(func() { time.Sleep(time.Second) })
		if q.TryDo(func() { t.Error("the job was run") }) {
			t.Error("TryDo = true while a job runs, want false")
		}
		work.Wait()
		ran := false
		if !q.TryDo(func() { ran = true }) {
			t.Error("TryDo = false with nothing to do, want true")
		}
		work.Wait()
		if !ran {
			t.Error("the job was not run")
		}
	})
}

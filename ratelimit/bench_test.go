package ratelimit_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podyard/podyard/ratelimit"
)

func BenchmarkAcquire(b *testing.B) {
	r := ratelimit.NewRates(0)
	c := keyFor(ratelimit.Run)
	now := start
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(pace)
		pass, d := r.Acquire(now, c, 0)
		if !d.OK {
			b.Fatal(d.Detail)
		}
		pass.Release()
	}
}

// pace is slow enough for every request of a limited operation to pass.
const pace = 11 * time.Millisecond

func BenchmarkAcquireManyKeys(b *testing.B) {
	r := ratelimit.NewRates(0)
	callers := make([]ratelimit.Key, 10_000)
	for i := range callers {
		callers[i] = ratelimit.Key{User: fmt.Sprint("user-", i), Endpoint: "echo", Operation: ratelimit.Status}
	}
	b.ReportAllocs()
	var at atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			n := at.Add(1)
			pass, _ := r.Acquire(start.Add(time.Duration(n)*time.Microsecond), callers[n%int64(len(callers))], 0)
			pass.Release()
		}
	})
}

func BenchmarkTake(b *testing.B) {
	w := ratelimit.NewWindows(ratelimit.Quotas{})
	now := start
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Second)
		w.Take(now, "u")
	}
}

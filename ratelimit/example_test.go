package ratelimit_test

import (
	"fmt"
	"time"

	"github.com/podyard/podyard/ratelimit"
)

// The rate of a user at an endpoint: the third purge within ten seconds has to wait.
func ExampleRates() {
	r := ratelimit.NewRates(0)
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	purge := ratelimit.Key{User: "alice", Endpoint: "echo", Operation: ratelimit.PurgeQueue}
	for range 3 {
		pass, d := r.Acquire(now, purge, 0)
		fmt.Printf("%v, come again in %d s\n", d.OK, d.RetryAfter)
		pass.Release() // when it has been answered
	}
	// Output:
	// true, come again in 0 s
	// true, come again in 0 s
	// false, come again in 5 s
}

// The quotas of a user: what is left is told with every answer.
func ExampleWindows() {
	w := ratelimit.NewWindows(ratelimit.Quotas{Minute: 2})
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for range 3 {
		d := w.Take(now, "alice")
		fmt.Println(d.OK, d.RetryAfter, d.RateLimit())
		now = now.Add(10 * time.Second)
	}
	// Output:
	// true 0 "minute";r=1;t=60, "hour";r=17999;t=3600, "day";r=199999;t=86400
	// true 0 "minute";r=0;t=50, "hour";r=17998;t=3590, "day";r=199998;t=86390
	// false 40 "minute";r=0;t=40, "hour";r=17998;t=3580, "day";r=199998;t=86380
}

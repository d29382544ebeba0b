package podhost

import (
	"testing"
	"time"
)

func TestALoadIsThatSinceTheSampleBefore(t *testing.T) {
	start := time.Unix(1000, 0)
	var l CPULoad
	for _, row := range []struct {
		what    string
		at      time.Duration
		cpu     time.Duration
		started time.Time
		cores   int
		want    int
	}{
		{"since the start", 10 * time.Second, 5 * time.Second, start, 1, 50},
		{"since the sample before", 11 * time.Second, 6 * time.Second, start, 1, 100},
		{"too near to tell", 11*time.Second + 100*time.Millisecond, 6 * time.Second, start, 1, 100},
		{"nothing was done", 12 * time.Second, 6 * time.Second, start, 1, 0},
		{"of two cores", 13 * time.Second, 7 * time.Second, start, 2, 50},
		{"more than there is", 14 * time.Second, 17 * time.Second, start, 2, 100},
		{"another start counts anew", 22 * time.Second, time.Second, start.Add(20 * time.Second), 1, 50},
	} {
		if got := l.Sample(CPUUsage{At: start.Add(row.at), CPU: row.cpu}, row.started, row.cores); got != row.want {
			t.Errorf("%s: load = %d, want %d", row.what, got, row.want)
		}
	}
}

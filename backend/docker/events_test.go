package docker

import (
	"context"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
)

// Only the signal that this run of the container got may be that of an engine that stops. Otherwise the end of a
// pod that was restarted would be seen late.
func TestASignalOfAnEarlierRunDelaysNoEnd(t *testing.T) {
	r := &Runtime{lifetime: func(func(context.Context)) func() { return func() {} }}
	r.endsPods.Store(true)
	now := time.Now()
	for name, tt := range map[string]struct {
		started time.Time
		want    bool
	}{
		"of this run":       {now.Add(-time.Second), true},
		"of an earlier run": {now.Add(time.Second), false},
	} {
		p := r.newPod("a")
		p.noteSignal(now)
		c := &container.InspectResponse{State: &container.State{StartedAt: tt.started.Format(time.RFC3339Nano)}}
		if got := p.mayEndWithEngine(c); got != tt.want {
			t.Errorf("after a signal %s its end may be that of the engine: %t, want %t", name, got, tt.want)
		}
	}
	r.work.Wait()
}

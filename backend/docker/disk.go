package docker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/pods"
)

// labelDisk is on containers whose disk the engine does not limit: the limit in GB.
const labelDisk = "io.podyard.disk"

const (
	// diskRest bounds the share of time in which a disk is measured: the pause is that many times
	// as long as the measurement, because the engine visits every file of the container.
	diskRest = 20
	// diskPatience is how long a measurement may take. A container could have so many files that
	// it never ends.
	diskPatience = 5 * time.Minute
)

// watchDisks ends containers that have more on their disks than their pods may. The engine measures
// one at a time.
func (r *Runtime) watchDisks(ctx context.Context) {
	for pause := r.opts.diskCheck; sleep(ctx, pause); {
		round := time.Now()
		for _, p := range r.pods.All() {
			s, _ := p.currentState()
			if ctx.Err() != nil || s.Phase != pods.PhaseStarting && s.Phase != pods.PhaseHealthy || time.Now().Before(p.nextDisk) {
				continue
			}
			began := time.Now()
			if why := p.overDisk(ctx); why != nil {
				p.do(func(ctx context.Context) { p.endForDisk(ctx, s.Started, why) })
			}
			p.nextDisk = time.Now().Add(diskRest * time.Since(began))
		}
		pause = max(r.opts.diskCheck, time.Since(round)) // at most half of the time, for all together
	}
}

// sleep returns false if ctx ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// overDisk returns an error that says that the disk of the container has more than its limit. A disk
// that cannot be measured in time counts as such.
func (p *pod) overDisk(ctx context.Context) error {
	c, err := p.inspect(ctx)
	if err != nil || c == nil || !c.State.Running {
		return nil
	}
	limit, err := strconv.ParseInt(c.Config.Labels[labelDisk], 10, 64)
	if err != nil {
		return nil // it has none
	}
	limit *= gigabyte
	in, cancel := context.WithTimeout(ctx, diskPatience)
	defer cancel()
	used, err := p.r.diskOf(in, c)
	if errors.Is(in.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("what it has written to its disk could not be measured in %v", diskPatience)
	}
	if err == nil && used <= limit {
		var more int64
		more, err = p.r.volumesOf(ctx, c)
		used += more
	}
	switch {
	case used > limit:
		return fmt.Errorf("its disk is full: it holds %d MB, and %d MB is the limit", used>>20, limit>>20)
	case err != nil:
		p.logError(ctx, "has a disk that was not measured", err)
	}
	return nil
}

// diskOf returns how many bytes a container has written to its own layer.
func (r *Runtime) diskOf(ctx context.Context, c *container.InspectResponse) (int64, error) {
	got, err := r.api.ContainerInspect(ctx, c.ID, client.ContainerInspectOptions{Size: true})
	if err != nil || got.Container.SizeRw == nil {
		return 0, err
	}
	return *got.Container.SizeRw, nil
}

// volumesOf returns how many bytes are in the volumes that the image of a container declares. The
// engine measures all volumes of the host for that, so it may take long because of a volume of
// somebody else, and a container is not ended for it.
func (r *Runtime) volumesOf(ctx context.Context, c *container.InspectResponse) (used int64, err error) {
	anonymous := map[string]bool{}
	for _, m := range c.Mounts {
		if m.Type == mount.TypeVolume {
			anonymous[m.Name] = true
		}
	}
	if c.HostConfig != nil {
		for _, m := range c.HostConfig.Mounts { // the volumes of the pod, which have sizes of their own
			delete(anonymous, m.Source)
		}
	}
	if len(anonymous) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, diskPatience)
	defer cancel()
	all, err := r.api.DiskUsage(ctx, client.DiskUsageOptions{Volumes: true, Verbose: true})
	if err != nil {
		return 0, err
	}
	for _, v := range all.Volumes.Items {
		if anonymous[v.Name] && v.UsageData != nil {
			used += max(v.UsageData.Size, 0)
		}
	}
	return used, nil
}

// endForDisk is the job that ends the container that was started then.
func (p *pod) endForDisk(ctx context.Context, started time.Time, why error) {
	if p.rec.Starting || !p.rec.State.Started.Equal(started) || p.rec.State.Phase >= pods.PhaseExited {
		return
	}
	c, err := p.inspect(ctx)
	if err != nil || c == nil || !c.State.Running {
		return // its end is noticed
	}
	p.failContainer(ctx, c, why)
}

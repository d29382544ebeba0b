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
	for sleep(ctx, r.opts.diskCheck) {
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
	switch {
	case errors.Is(in.Err(), context.DeadlineExceeded):
		return fmt.Errorf("what it has written to its disk could not be measured in %v", diskPatience)
	case err != nil:
		p.logError(ctx, "has a disk that was not measured", err)
	case used > limit:
		return fmt.Errorf("its disk is full: it holds %d MB, and %d MB is the limit", used>>20, limit>>20)
	}
	return nil
}

// diskOf returns how many bytes a container has written, also to volumes that its image declares.
func (r *Runtime) diskOf(ctx context.Context, c *container.InspectResponse) (used int64, err error) {
	got, err := r.api.ContainerInspect(ctx, c.ID, client.ContainerInspectOptions{Size: true})
	if err != nil {
		return 0, err
	}
	if got.Container.SizeRw != nil {
		used = *got.Container.SizeRw
	}
	anonymous := map[string]bool{}
	for _, m := range c.Mounts {
		anonymous[m.Name] = m.Type == mount.TypeVolume
	}
	if c.HostConfig != nil {
		for _, m := range c.HostConfig.Mounts { // the volumes of the pod, which have sizes of their own
			delete(anonymous, m.Source)
		}
	}
	if len(anonymous) == 0 {
		return used, nil
	}
	all, err := r.api.DiskUsage(ctx, client.DiskUsageOptions{Volumes: true, Verbose: true})
	if err != nil {
		return used, err
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
	if _, open := p.changes(); !open || p.rec.Starting || !p.rec.State.Started.Equal(started) || p.rec.State.Phase >= pods.PhaseExited {
		return
	}
	c, err := p.inspect(ctx)
	if err != nil || c == nil || !c.State.Running {
		return // its end is noticed
	}
	p.failContainer(ctx, c, why)
}

package docker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/pods"
)

func (r *Runtime) localVolume(podID string, n int) string {
	return "podyard-" + r.instance + "-" + podID + "-" + strconv.Itoa(n)
}

func (r *Runtime) networkVolume(id string) string {
	return "podyard-" + r.instance + "-volume-" + id
}

// volumes creates the missing volumes of a pod and returns all its mounts. The name of a
// local volume has its index, so that a changed path keeps the volume.
func (r *Runtime) volumes(ctx context.Context, s pods.Spec) ([]mount.Mount, error) {
	var all []mount.Mount
	local := 0
	for _, m := range s.Mounts {
		labels := map[string]string{labelInstance: r.instance}
		var name string
		if m.VolumeID != "" {
			if !plainName(m.VolumeID) {
				return nil, fmt.Errorf("volume id %q is not a plain name", m.VolumeID)
			}
			name, labels[labelVolume] = r.networkVolume(m.VolumeID), m.VolumeID
		} else {
			name, labels[labelPod] = r.localVolume(s.PodID, local), s.PodID
			local++
		}
		if err := r.makeVolume(ctx, name, labels); err != nil {
			return nil, err
		}
		all = append(all, mount.Mount{
			Type: mount.TypeVolume, Source: name, Target: m.Path, VolumeOptions: &mount.VolumeOptions{NoCopy: true},
		})
	}
	return all, nil
}

// makeVolume inspects first, because Podman returns an error for a volume that exists.
func (r *Runtime) makeVolume(ctx context.Context, name string, labels map[string]string) error {
	_, err := r.api.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
	if err == nil || !errdefs.IsNotFound(err) {
		return err
	}
	_, err = r.api.VolumeCreate(ctx, client.VolumeCreateOptions{Name: name, Labels: labels})
	return err
}

// dropVolumes removes the local volumes of a pod.
func (r *Runtime) dropVolumes(ctx context.Context, podID string) error {
	list, err := r.api.VolumeList(ctx, client.VolumeListOptions{Filters: r.instanceFilters(labelPod + "=" + podID)})
	if err != nil {
		return err
	}
	for _, v := range list.Items {
		// An engine may apply filters in another way: check the labels again.
		if v.Labels[labelInstance] != r.instance || v.Labels[labelPod] != podID {
			continue
		}
		_, err := r.api.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{})
		if err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// Purge removes every pod, and the network volumes. No other method may be called while
// Purge runs. Only Close may be called afterwards.
func (r *Runtime) Purge(ctx context.Context) error {
	var mu sync.Mutex
	var errs []error
	var work sync.WaitGroup
	for _, p := range r.pods.All() {
		work.Go(func() {
			err := r.Remove(ctx, p.id, time.Second)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	work.Wait()
	list, err := r.api.VolumeList(ctx, client.VolumeListOptions{Filters: r.instanceFilters()})
	errs = append(errs, err)
	for _, v := range list.Items {
		if id := v.Labels[labelVolume]; id != "" && v.Labels[labelInstance] == r.instance {
			errs = append(errs, r.RemoveVolume(ctx, id))
		}
	}
	return errors.Join(errs...)
}

// RemoveVolume removes a network volume. No pod may mount it any more. A volume that no pod
// ever mounted does not exist, and RemoveVolume returns nil.
func (r *Runtime) RemoveVolume(ctx context.Context, id string) error {
	if !plainName(id) {
		return fmt.Errorf("docker: volume id %q is not a plain name", id)
	}
	name := r.networkVolume(id)
	found, err := r.api.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err == nil && found.Volume.Labels[labelVolume] != id {
		err = fmt.Errorf("%s is not of this server", name)
	}
	if err == nil {
		_, err = r.api.VolumeRemove(ctx, name, client.VolumeRemoveOptions{})
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("docker: remove volume %q: %w", id, err)
	}
	return nil
}

package docker

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/internal/podhost"
)

// A pulledImage is an image that this Runtime pulled.
type pulledImage struct {
	// Name is the full name. It is empty after the name moved to a newer image.
	Name string    `json:"name"`
	ID   string    `json:"id"`
	Used time.Time `json:"used"` // when it was last used for a new container, or seen with a container
}

// pulledImages is the list of pulled images, which is kept in a file. The zero value is not
// usable.
type pulledImages struct {
	path string
	log  func(err error)

	mu  sync.Mutex
	all []pulledImage
}

// openPulledImages reads the list. If it cannot be read, the list starts empty, and its
// images are never removed.
func openPulledImages(dir stateDir, log func(error)) *pulledImages {
	t := &pulledImages{path: filepath.Join(string(dir), "images.json"), log: log}
	data, err := os.ReadFile(t.path)
	if err == nil {
		err = json.Unmarshal(data, &t.all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.log(err)
	}
	return t
}

// pulled records the pull of an image. before is the id that the name had before the pull,
// or empty. If the name belonged to an image that this Runtime did not pull, the image is
// not recorded.
func (t *pulledImages) pulled(name, before, id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.all, func(p pulledImage) bool { return p.Name == name })
	switch {
	case i < 0 && before == "":
		t.all = append(t.all, pulledImage{name, id, time.Now()})
	case i < 0:
		return
	case t.all[i].ID == id:
		t.all[i].Used = time.Now()
	case t.all[i].ID == before:
		t.all[i].Name = "" // the tag was moved in the registry
		t.all = append(t.all, pulledImage{name, id, time.Now()})
	default:
		t.all = slices.Delete(t.all, i, i+1) // somebody else gave the name to another image
	}
	t.saveLocked()
}

// used records that a container is created from an image.
func (t *pulledImages) used(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.IndexFunc(t.all, func(p pulledImage) bool { return p.Name == name }); i >= 0 {
		t.all[i].Used = time.Now()
		t.saveLocked()
	}
}

// touch records which images containers have at now. It returns the other images, the least
// recently used first.
func (t *pulledImages) touch(inUse map[string]bool, now time.Time) []pulledImage {
	t.mu.Lock()
	defer t.mu.Unlock()
	var unused []pulledImage
	for i := range t.all {
		if inUse[bareID(t.all[i].ID)] {
			t.all[i].Used = now
		} else {
			unused = append(unused, t.all[i])
		}
	}
	slices.SortFunc(unused, func(a, b pulledImage) int { return a.Used.Compare(b.Used) })
	t.saveLocked()
	return unused
}

// forget removes p from the list, unless it was used after p was read.
func (t *pulledImages) forget(p pulledImage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = slices.DeleteFunc(t.all, func(q pulledImage) bool { return p == q })
	t.saveLocked()
}

// saveLocked writes the list without a sync. If power fails, images of lost entries are
// never removed.
func (t *pulledImages) saveLocked() {
	data, err := json.Marshal(t.all)
	if err == nil {
		err = podhost.ReplaceFile(t.path, data, false)
	}
	if err != nil {
		t.log(err)
	}
}

// bareID is an image id without its prefix: the engines use both forms.
func bareID(id string) string { return strings.TrimPrefix(id, "sha256:") }

// How often unused images and disk space are checked.
const (
	collectInterval = time.Hour
	diskInterval    = time.Minute
)

// keepUsed is how long an image is kept after its last use, even if the disk is full: its
// container may not exist yet.
const keepUsed = 10 * time.Minute

// watchImages removes unused images until ctx ends.
func (r *Runtime) watchImages(ctx context.Context) {
	tick := time.NewTicker(diskInterval)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if time.Since(last) < collectInterval && !r.isDiskLow() {
			continue
		}
		last = time.Now()
		if err := r.collectImages(ctx, last, r.isDiskLow); err != nil && ctx.Err() == nil {
			r.opts.Logger.Warn("docker: images that nobody uses stay", "err", err)
		}
	}
}

// isDiskLow reports whether the engine's disk has less free space than Options.DiskFree.
func (r *Runtime) isDiskLow() bool {
	if r.opts.DiskFree < 0 || r.engine.storage == "" {
		return false
	}
	free, err := freePercent(r.engine.storage)
	return err == nil && free < float64(r.opts.DiskFree)
}

// collectImages removes images that this Runtime pulled and that no container has. It
// removes those that were unused for Options.ImageAge. While low returns true, it also
// removes others, the least recently used first.
func (r *Runtime) collectImages(ctx context.Context, now time.Time, low func() bool) error {
	list, err := r.api.ContainerList(ctx, client.ContainerListOptions{All: true})
	if err != nil {
		return err
	}
	inUse := map[string]bool{}
	for _, c := range list.Items {
		inUse[bareID(c.ImageID)] = true
	}
	var errs []error
	for _, p := range r.images.touch(inUse, now) {
		age := now.Sub(p.Used)
		expired := r.opts.ImageAge > 0 && age >= r.opts.ImageAge
		if age < keepUsed || r.isLocalImage(p.Name) || !expired && !low() {
			continue
		}
		errs = append(errs, r.removeImage(ctx, p))
	}
	return errors.Join(errs...)
}

// isLocalImage reports whether an image is one of Options.LocalImages.
func (r *Runtime) isLocalImage(name string) bool {
	n, err := parseImage(name)
	return err == nil && r.matchesLocalImages(n)
}

// removeImage removes an image, unless its name now belongs to another image, or somebody
// gave a name to an image that had lost its own. The engine refuses to remove an image that
// a container has.
func (r *Runtime) removeImage(ctx context.Context, p pulledImage) error {
	ref := p.Name
	if ref == "" {
		ref = p.ID
	}
	found, err := r.inspectImage(ctx, ref)
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	ours := err == nil && found.ID == p.ID && (p.Name != "" || len(found.RepoTags) == 0)
	if ours {
		_, err = r.api.ImageRemove(ctx, ref, client.ImageRemoveOptions{PruneChildren: true})
	}
	if ours && err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	if ours {
		r.opts.Logger.Info("docker: an image that nobody uses was removed", "image", ref)
	}
	r.images.forget(p)
	return nil
}

package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/podyard/podyard/backend/process/internal/supervise"
	"github.com/podyard/podyard/pods"
)

// A layout says where things are below the directory of a Runtime. Names that come from
// a Spec are checked by plainName before they become part of a path.
//
//	lock
//	pods/<id>/state.json    what the server knows of the pod
//	pods/<id>/run.json      what its supervisor knows of the last start
//	pods/<id>/supervisor    is locked by its supervisor
//	pods/<id>/log           its lines
//	pods/<id>/disk          its container disk
//	pods/<id>/tmp           its TMPDIR, as short-lived as the disk
//	pods/<id>/mount-<n>     host-local storage, by its place among the host-local mounts
//	volumes/<id>            network volumes
//	trash                   what is being removed
type layout string

func (l layout) at(elem ...string) string {
	return filepath.Join(append([]string{string(l)}, elem...)...)
}

func (l layout) lock() string             { return l.at("lock") }
func (l layout) trash() string            { return l.at("trash") }
func (l layout) pod(id string) string     { return l.at("pods", id) }
func (l layout) record(id string) string  { return l.at("pods", id, "state.json") }
func (l layout) disk(id string) string    { return l.at("pods", id, "disk") }
func (l layout) scratch(id string) string { return l.at("pods", id, "tmp") }
func (l layout) log(id string) string     { return supervise.LogDir(l.pod(id)) }

func (l layout) make() error {
	for _, name := range []string{"pods", "volumes", "trash"} {
		if err := os.MkdirAll(l.at(name), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// makePassable lets everybody pass through directories without listing them.
func (l layout) makePassable() error {
	entries, err := os.ReadDir(l.at("pods"))
	if err != nil {
		return err
	}
	dirs := []string{l.at(), l.at("pods"), l.at("volumes")}
	for _, e := range entries {
		dirs = append(dirs, l.pod(e.Name()))
	}
	for _, dir := range dirs {
		if err := os.Chmod(dir, 0o711); err != nil {
			return err
		}
	}
	return nil
}

// podIDs returns the pods that have a record. A directory without one is left by a crash while a
// pod was being made, and goes into the trash.
func (l layout) podIDs(t *supervise.Trash) ([]string, error) {
	entries, err := os.ReadDir(l.at("pods"))
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if _, err := os.Stat(l.record(e.Name())); errors.Is(err, fs.ErrNotExist) {
			if err := t.Put(l.pod(e.Name())); err != nil {
				return nil, err
			}
			continue
		}
		ids = append(ids, e.Name())
	}
	return ids, nil
}

// disks makes the directories of a container.
func (l layout) disks(id string) error {
	return errors.Join(os.MkdirAll(l.disk(id), 0o700), os.MkdirAll(l.scratch(id), 0o700))
}

// mounts makes the directories of mounts and returns them in the same order.
func (l layout) mounts(id string, mounts []pods.Mount) ([]string, error) {
	dirs := make([]string, len(mounts))
	local := 0
	for i, m := range mounts {
		switch {
		case m.VolumeID == "":
			// By its place and not by its path, so that a mount keeps its data when its path
			// changes.
			dirs[i] = l.at("pods", id, "mount-"+strconv.Itoa(local))
			local++
		case plainName(m.VolumeID):
			dirs[i] = l.at("volumes", m.VolumeID)
		default:
			return nil, fmt.Errorf("volume id %q is not a plain name", m.VolumeID)
		}
		if err := os.MkdirAll(dirs[i], 0o700); err != nil {
			return nil, err
		}
	}
	return dirs, nil
}

// plainName reports whether s is a safe directory name on any system.
func plainName(s string) bool {
	if s == "" || len(s) > 128 || s[0] == '.' || strings.HasSuffix(s, ".") || strings.Contains(s, "..") {
		return false
	}
	return !strings.ContainsFunc(s, func(c rune) bool {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		return !letter && c != '-' && c != '_' && c != '.'
	})
}

// below reports whether path is dir or lies in it. Both are clean.
func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, string(filepath.Separator))+string(filepath.Separator))
}

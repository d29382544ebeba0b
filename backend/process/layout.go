package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/podyard/podyard/pods"
)

// A layout says where things are below the directory of a Runtime. Names that come from
// a Spec are checked by plainName before they become part of a path.
//
//	lock
//	users.json              which owner has which user of this host
//	pods/<id>/state.json    what is known of the pod
//	pods/<id>/disk          its container disk
//	pods/<id>/tmp           its TMPDIR, as short-lived as the disk
//	pods/<id>/mount-<n>     host-local storage, by its place among the host-local mounts
//	pods/<id>/raw-<start>   what one start of it wrote and has not been read yet
//	pods/<id>/log           its lines
//	volumes/<id>            network volumes
type layout string

func (l layout) at(elem ...string) string {
	return filepath.Join(append([]string{string(l)}, elem...)...)
}

func (l layout) lock() string             { return l.at("lock") }
func (l layout) users() string            { return l.at("users.json") }
func (l layout) pod(id string) string     { return l.at("pods", id) }
func (l layout) record(id string) string  { return l.at("pods", id, "state.json") }
func (l layout) disk(id string) string    { return l.at("pods", id, "disk") }
func (l layout) scratch(id string) string { return l.at("pods", id, "tmp") }
func (l layout) log(id string) string     { return l.at("pods", id, "log") }

func (l layout) raw(id string, start uint64) string {
	return l.at("pods", id, "raw-"+strconv.FormatUint(start, 10))
}

func (l layout) make() error {
	if err := os.MkdirAll(l.at("pods"), 0o700); err != nil {
		return err
	}
	return os.MkdirAll(l.at("volumes"), 0o700)
}

// makePassable lets everybody pass through directories without listing them, because users of
// pods own directories below them.
func (l layout) makePassable() error {
	pods, err := readDirs(l.at("pods"))
	if err != nil {
		return err
	}
	for _, dir := range append(pods, l.at(), l.at("pods"), l.at("volumes")) {
		if err := os.Chmod(dir, 0o711); err != nil {
			return err
		}
	}
	return nil
}

func (l layout) podIDs() ([]string, error) {
	entries, err := os.ReadDir(l.at("pods"))
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		// A directory without a record is left by a crash while a pod was being made or
		// removed.
		if _, err := os.Stat(l.record(e.Name())); errors.Is(err, fs.ErrNotExist) {
			if err := destroy(l.pod(e.Name())); err != nil {
				return nil, err
			}
			continue
		}
		ids = append(ids, e.Name())
	}
	return ids, nil
}

// disks makes the directories of a container. If wipe is set, it empties the disk.
func (l layout) disks(id string, wipe bool) error {
	for _, dir := range []string{l.disk(id), l.scratch(id)} {
		if wipe {
			if err := destroy(dir); err != nil {
				return err
			}
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
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

// destroy removes a tree, also one in which a pod removed its own permissions.
func destroy(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	root, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return err
	}
	err = fs.WalkDir(root.FS(), filepath.Base(dir), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return root.Chmod(path, 0o700)
		}
		return err
	})
	return errors.Join(err, root.Close(), os.RemoveAll(dir))
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

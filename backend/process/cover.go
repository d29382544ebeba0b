package process

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// A cover is a directory that lies over one of the host, in bubblewrap. It is empty where the whole
// directory is hidden. Where a file in it is hidden, it shows what else is there.
//
// Nothing is laid over the file itself: when the file is replaced, as an editor does that saves it
// and an engine that starts again with its socket, the kernel takes away what lay over it, in all
// namespaces, and a pod that runs would see the new file.
type cover struct {
	dir   string
	mode  fs.FileMode
	shows []fs.DirEntry
}

// mostShown is how many entries of a directory are shown beside a hidden file. Bubblewrap has a
// limit for its arguments. Of a larger directory nothing is shown.
const mostShown = 1000

// coversOf returns what hides some paths, a directory before those in it. A path that does not
// exist is hidden if its directory exists. A file in the root directory is not: everything is there.
func coversOf(hide []string) (covers []cover) {
	whole, files := map[string]bool{}, map[string][]string{}
	for _, path := range hide {
		if isDir(path) {
			whole[path] = true
		} else if dir := filepath.Dir(path); dir != filepath.Dir(dir) && isDir(dir) {
			files[dir] = append(files[dir], path)
		}
	}
	var dirs []string
	for dir := range whole {
		dirs = append(dirs, dir)
	}
	for dir := range files {
		if !whole[dir] {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	for _, dir := range dirs {
		if slices.ContainsFunc(covers, func(c cover) bool { return len(c.shows) == 0 && below(dir, c.dir) }) {
			continue
		}
		c := cover{dir: dir, mode: 0o755}
		if !whole[dir] {
			c.show(func(path string) bool { return whole[path] || slices.Contains(files[dir], path) })
		}
		covers = append(covers, c)
	}
	return covers
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// show has the cover show what is in the directory, but for what is hidden. What cannot be read is
// not shown.
func (c *cover) show(hidden func(path string) bool) {
	info, err := os.Stat(c.dir)
	if err != nil {
		return
	}
	c.mode = info.Mode().Perm()
	entries, err := os.ReadDir(c.dir)
	if err != nil || len(entries) > mostShown {
		return
	}
	c.shows = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return hidden(filepath.Join(c.dir, e.Name())) })
}

// args are those of bubblewrap.
func (c *cover) args() []string {
	args := []string{"--perms", fmt.Sprintf("%04o", c.mode), "--tmpfs", c.dir}
	for _, e := range c.shows {
		path := filepath.Join(c.dir, e.Name())
		if target, err := os.Readlink(path); err == nil {
			args = append(args, "--symlink", target, path)
		} else {
			args = append(args, "--ro-bind-try", path, path) // it may be gone
		}
	}
	return args
}

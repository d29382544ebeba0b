package command

import (
	"archive/tar"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// A place is a local path, or a path inside a pod.
type place struct{ pod, path string }

// placeOf reads POD:/PATH. Anything else is local, "C:\file" and "./a:/b" among it.
func placeOf(s string) place {
	if pod, p, ok := strings.Cut(s, ":"); ok && len(pod) > 1 && !strings.ContainsAny(pod, `/\`) && strings.HasPrefix(p, "/") {
		return place{pod, p}
	}
	return place{path: s}
}

func copyInside(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		from, to := placeOf(c.Args[0]), placeOf(c.Args[1])
		switch {
		case from.pod == "" && to.pod == "":
			return usagef("neither %s nor %s is in a pod: write POD:/PATH", from.path, to.path)
		case from.pod != "" && to.pod != "":
			return usagef("one of the two must be a local path")
		case from.pod != "":
			return c.copyOut(ctx, from, to.path)
		}
		return c.copyIn(ctx, from.path, to)
	}
}

// copyIn sends a file or a directory to a pod.
func (c *Call) copyIn(ctx context.Context, from string, to place) error {
	if _, err := os.Lstat(from); err != nil {
		return err
	}
	dir, name := path.Split(to.path)
	if name == "" {
		abs, err := filepath.Abs(from) // "." has a name, too
		if err != nil {
			return err
		}
		name = filepath.Base(abs)
	}
	r, w := io.Pipe()
	defer func() { _ = r.Close() }() // ends pack
	packed := make(chan error, 1)
	go func() {
		err := pack(w, from, name)
		_ = w.CloseWithError(err) // io.EOF for nil
		packed <- err
	}()
	err := c.Client.Pods.WriteFiles(ctx, to.pod, path.Clean(dir), r)
	_ = r.CloseWithError(errStopped)
	if local := <-packed; local != nil && !errors.Is(local, errStopped) {
		return local
	}
	return err
}

// errStopped says that the server takes no more of an archive.
var errStopped = errors.New("the copy was stopped")

// pack writes a file, or a directory with what is below it, as an archive whose names begin with name.
func pack(w io.Writer, from, name string) error {
	archive := tar.NewWriter(w)
	err := filepath.WalkDir(from, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		return packOne(archive, p, path.Join(name, filepath.ToSlash(rel)))
	})
	if err != nil {
		return err
	}
	return archive.Close()
}

func packOne(archive *tar.Writer, p, name string) error {
	info, err := os.Lstat(p)
	if err != nil {
		return err
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(p); err != nil {
			return err
		}
	}
	if !info.Mode().IsRegular() && !info.IsDir() && link == "" {
		return fmt.Errorf("%s is no file, directory or link", p)
	}
	h, err := tar.FileInfoHeader(info, filepath.ToSlash(link))
	if err != nil {
		return err
	}
	h.Name, h.Uname, h.Gname, h.Uid, h.Gid = name, "", "", 0, 0 // who runs tar in the pod owns it
	if info.IsDir() {
		h.Name += "/"
	}
	if err := archive.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(p)
	if err != nil {
		return err
	}
	_, err = io.Copy(archive, f)
	return errors.Join(err, f.Close())
}

// copyOut writes a file or a directory of a pod.
func (c *Call) copyOut(ctx context.Context, from place, to string) error {
	name := path.Base(path.Clean(from.path))
	dir := to
	if info, err := os.Stat(to); err != nil || !info.IsDir() {
		if strings.HasSuffix(to, "/") || strings.HasSuffix(to, string(filepath.Separator)) {
			return fmt.Errorf("%s is no directory", to)
		}
		dir, name = filepath.Dir(to), filepath.Base(to)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing is written to it
	archive, err := c.Client.Pods.ReadFiles(ctx, from.pod, from.path)
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }() // it was read
	return unpack(archive, root, name)
}

// unpack extracts an archive of one file, link or directory, whose first element of the names becomes name.
// Nothing is written but that and what is below it, whatever the pod sends.
func unpack(r io.Reader, root *os.Root, name string) error {
	archive := tar.NewReader(r)
	var inside *os.Root // nil: no directory
	defer func() {
		if inside != nil {
			_ = inside.Close() // nothing is written to it
		}
	}()
	for first := true; ; first = false {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, r) // what fills the last record
			return err
		}
		if err != nil {
			return err
		}
		_, rest, _ := strings.Cut(strings.TrimPrefix(path.Clean("/"+h.Name), "/"), "/")
		switch {
		case !first && inside == nil, !first && rest == "" && h.Typeflag != tar.TypeDir:
			return fmt.Errorf("the pod sends %s, which was not asked for", h.Name)
		case first && (rest != "" || h.Typeflag == tar.TypeDir):
			if inside, err = openInside(root, name, fs.FileMode(h.Mode)&0o777|0o700); err != nil {
				return err
			}
		case first:
			if err := unlinked(root, name); err != nil && h.Typeflag != tar.TypeSymlink { // a link takes its place
				return err
			}
			if err := unpackOne(archive, h, root, name); err != nil {
				return err
			}
			continue
		}
		if rest == "" {
			continue // the directory itself
		}
		if err := unpackOne(archive, h, inside, rest); err != nil {
			return err
		}
	}
}

// unlinked fails if a name is a link: what an earlier copy has left may lead anywhere below root.
func unlinked(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil && info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a link: remove it first", name)
	}
	return err
}

// openInside opens a directory, which it makes if there is none.
func openInside(root *os.Root, name string, mode fs.FileMode) (*os.Root, error) {
	if err := unlinked(root, name); err != nil {
		return nil, err
	}
	if err := root.Mkdir(name, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return root.OpenRoot(name)
}

func unpackOne(archive *tar.Reader, h *tar.Header, root *os.Root, name string) error {
	mode := fs.FileMode(h.Mode) & 0o777
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, mode|0o700)
	case tar.TypeSymlink:
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return root.Symlink(h.Linkname, name)
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, archive)
		return errors.Join(err, f.Close())
	}
	return fmt.Errorf("%s in the pod is no file, directory or link", h.Name)
}

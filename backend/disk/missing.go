package disk

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"

	"github.com/podyard/podyard/problem"
)

// The names of the markers of the database. A marker is an empty file: what it says is in its
// name.
const (
	manifestMarker = "manifest"       // which manifest is in use
	formatMarker   = "format-version" // of the database
)

// restoreMarkers puts back a marker that is missing. Without the marker of the manifest the
// database would take the directory for an empty one, and remove every table.
func (s *Store) restoreMarkers() error {
	fs := s.opts.fs
	names, err := fs.List(s.dir)
	if err != nil {
		return err
	}
	isData := func(name string) bool { return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".log") }
	if !slices.ContainsFunc(names, isData) {
		return nil // a new directory
	}
	newest := newestManifest(names)
	if err := s.restoreMarker(formatMarker, format.String()); err != nil {
		return err
	}
	if newest != "" {
		if err := s.restoreMarker(manifestMarker, newest); err != nil {
			return err
		}
	}
	current, err := currentManifest(fs, s.dir)
	if err != nil {
		return err
	}
	if !slices.Contains(names, current) {
		return problem.Newf(problem.Unavailable, "%w: %s: it is missing", errManifest, s.dir)
	}
	return nil
}

// newestManifest is the manifest with the largest number. Each begins with all that the one
// before it said.
func newestManifest(names []string) (newest string) {
	for _, name := range names {
		if _, ok := isLog(name); ok && strings.HasPrefix(name, manifestPrefix) && (len(name) > len(newest) || len(name) == len(newest) && name > newest) {
			newest = name
		}
	}
	return newest
}

// restoreMarker puts a marker back that is missing.
func (s *Store) restoreMarker(name, value string) (err error) {
	m, current, err := atomicfs.LocateMarker(s.opts.fs, s.dir, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if current != "" {
		return nil
	}
	s.wasRestored("marker."+name, 1)
	return m.Move(value)
}

// currentManifest is the name of the manifest in use; empty when there is no marker.
func currentManifest(fs vfs.FS, dir string) (string, error) {
	m, current, err := atomicfs.LocateMarker(fs, dir, manifestMarker)
	if err != nil {
		return "", err
	}
	return current, m.Close()
}

// restoreMissingLogs makes a log that is missing of its mirror. The database itself removes one
// that it does not need any more.
func (s *Store) restoreMissingLogs() error {
	fs := s.opts.fs
	names, err := fs.List(s.dir)
	if err != nil {
		return err
	}
	for _, mirror := range names {
		name := strings.TrimSuffix(mirror, mirrorSuffix)
		if _, ok := isLog(name); !ok || name == mirror || slices.Contains(names, name) {
			continue
		}
		path := fs.PathJoin(s.dir, name)
		if err := errors.Join(copyFile(fs, path+mirrorSuffix, path), syncDir(fs, s.dir)); err != nil {
			return err
		}
		s.wasRestored(name, 1)
	}
	return nil
}

// forMaintenance are options with which a database opens whose tables may be missing or cut
// off, and which reads no table by itself.
func forMaintenance(o *pebble.Options) {
	o.DisableAutomaticCompactions, o.DisableConsistencyCheck, o.DisableTableStats = true, true, true
}

// verifyTables reads the tables of the database, restores those that are damaged, and suspects
// those that cannot be restored. all is false for those tables alone that are missing or have
// another size.
func (s *Store) verifyTables(ctx context.Context, all bool) error {
	e, tables, err := s.listTables()
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, table := range tables {
		path := e.fs.PathJoin(s.dir, table.BackingSSTNum.String()+".sst")
		if seen[path] {
			continue
		}
		seen[path] = true
		whole := tableSize(s.opts.fs, path) == int64(table.Size)
		if whole && !all && !table.Virtual {
			continue
		}
		if !whole && !table.Virtual {
			err = errors.Join(err, s.restoreSize(path))
		}
		if e.verifyTable(ctx, path) != nil {
			s.suspect(path)
		}
	}
	return errors.Join(err, ctx.Err(), e.closeDB())
}

// unknownTable is what the database says of a table that is missing.
var unknownTable = regexp.MustCompile(`file (\d+) \(type sstable\) unknown`)

// listTables opens the database for maintenance and lists its tables. The database itself does
// not list one that is missing: such a table is made first.
func (s *Store) listTables() (*engine, []pebble.SSTableInfo, error) {
	for made := ""; ; {
		e, err := s.openDB(forMaintenance)
		if err != nil {
			return nil, nil, err
		}
		levels, err := e.db.SSTables()
		if err == nil {
			return e, slices.Concat(levels...), nil
		}
		m := unknownTable.FindStringSubmatch(err.Error())
		if cerr := e.closeDB(); m == nil || m[1] == made || cerr != nil {
			return nil, nil, unavailable("list its tables", errors.Join(err, cerr))
		}
		made = m[1]
		if err := s.restoreSize(s.opts.fs.PathJoin(s.dir, made+".sst")); err != nil {
			return nil, nil, err
		}
	}
}

// tableSize is the size of a file, -1 when there is none.
func tableSize(fs vfs.FS, path string) int64 {
	info, err := fs.Stat(path)
	if err != nil {
		return -1
	}
	return info.Size()
}

// restoreSize restores a table that is missing or cut off, as far as its parity goes. One that
// is missing is an empty one from then on: it can be isolated as any other.
func (s *Store) restoreSize(path string) error {
	fs := s.opts.fs
	if _, err := fs.Stat(path); errors.Is(err, iofs.ErrNotExist) {
		f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			return fmt.Errorf("disk: make %q: %w", path, err)
		}
		if err := errors.Join(f.Sync(), f.Close(), syncDir(fs, s.dir)); err != nil {
			return err
		}
	}
	s.restoreTable(path)
	return nil
}

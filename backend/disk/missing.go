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

// The names of the markers of the database. A marker is an empty file whose value is in its
// name.
const (
	manifestMarker = "manifest"       // which manifest is in use
	formatMarker   = "format-version" // of the database
)

// restoreMarkers restores missing markers. Without the marker of the manifest, the database
// would treat the directory as empty and remove every table.
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

// newestManifest returns the manifest with the largest number. Each manifest begins with the
// full content of the one before.
func newestManifest(names []string) (newest string) {
	for _, name := range names {
		if _, ok := isLog(name); ok && strings.HasPrefix(name, manifestPrefix) && (len(name) > len(newest) || len(name) == len(newest) && name > newest) {
			newest = name
		}
	}
	return newest
}

// restoreMarker restores a missing marker.
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

// currentManifest returns the name of the manifest in use, or "" if there is no marker.
func currentManifest(fs vfs.FS, dir string) (string, error) {
	m, current, err := atomicfs.LocateMarker(fs, dir, manifestMarker)
	if err != nil {
		return "", err
	}
	return current, m.Close()
}

// restoreMissingLogs restores a missing log from its mirror. A log that is not needed is
// removed by the database.
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

// forMaintenance sets options with which a database can be opened although tables are missing
// or truncated. The database then reads no table by itself.
func forMaintenance(o *pebble.Options) {
	o.DisableAutomaticCompactions, o.DisableConsistencyCheck, o.DisableTableStats = true, true, true
}

// verifyTables reads the tables of the database, restores damaged ones, and suspects those
// that cannot be restored. If all is false, it checks only tables that are missing or have the
// wrong size.
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

// unknownTable matches the database's error for a missing table.
var unknownTable = regexp.MustCompile(`file (\d+) \(type sstable\) unknown`)

// listTables opens the database for maintenance and lists its tables. The database cannot list
// a missing table, so listTables creates an empty one first.
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

// tableSize returns the size of a file, or -1 if it does not exist.
func tableSize(fs vfs.FS, path string) int64 {
	info, err := fs.Stat(path)
	if err != nil {
		return -1
	}
	return info.Size()
}

// restoreSize restores a missing or truncated table as far as its parity file allows. A
// missing table is replaced by an empty file, which can be isolated like any other damaged
// table.
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

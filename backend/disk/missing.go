package disk

import (
	"context"
	"errors"
	"fmt"
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

// checkMarkers returns an error if a directory with data has no marker, or not the manifest that it
// names. The database would treat it as empty and remove every table.
func (s *Store) checkMarkers() error {
	fs := s.opts.fs
	names, err := fs.List(s.dir)
	if err != nil {
		return err
	}
	isData := func(name string) bool { return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".log") }
	if !slices.ContainsFunc(names, isData) {
		return nil // a new directory
	}
	current, err := currentManifest(fs, s.dir)
	if err != nil {
		return err
	}
	if !slices.Contains(names, current) {
		return problem.Newf(problem.Unavailable, "%w: %s: it is missing", errManifest, s.dir)
	}
	return s.putFormat()
}

// putFormat puts the marker of the format back that a power failure took away from a new directory.
func (s *Store) putFormat() (err error) {
	m, current, err := atomicfs.LocateMarker(s.opts.fs, s.dir, formatMarker)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if current != "" {
		return nil
	}
	return m.Move(format.String())
}

// currentManifest returns the name of the manifest in use, or "" if there is no marker.
func currentManifest(fs vfs.FS, dir string) (string, error) {
	m, current, err := atomicfs.LocateMarker(fs, dir, manifestMarker)
	if err != nil {
		return "", err
	}
	return current, m.Close()
}

// forMaintenance sets options with which a database can be opened although tables are missing
// or truncated. The database then reads no table by itself.
func forMaintenance(o *pebble.Options) {
	o.DisableAutomaticCompactions, o.DisableConsistencyCheck, o.DisableTableStats = true, true, true
}

// verifyTables reads the tables of the database, and suspects damaged ones. If all is false, it checks only tables that are missing or have the
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
		if e.verifyTable(ctx, path) != nil {
			s.suspect(path)
		}
	}
	return errors.Join(err, ctx.Err(), e.closeDB())
}

// unknownTable matches the database's error for a missing table.
var unknownTable = regexp.MustCompile(`file (\d+) \(type sstable\) unknown`)

// listTables opens the database for maintenance and lists its tables. The database cannot list
// a missing table, so listTables creates an empty one first. It
// can be isolated like any other damaged table.
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
		f, err := s.opts.fs.Create(s.opts.fs.PathJoin(s.dir, made+".sst"), vfs.WriteCategoryUnspecified)
		if err != nil {
			return nil, nil, fmt.Errorf("disk: make a missing table: %w", err)
		}
		if err := errors.Join(f.Sync(), f.Close(), syncDir(s.opts.fs, s.dir)); err != nil {
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

package disk_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/podyard/podyard/backend/disk"
	"github.com/podyard/podyard/registries"
)

// A directory is one directory however it is written. Each spelling opens what the others have
// kept, and Check, Backup and Restore find nothing wrong with it.
func TestADirectoryIsOneDirectoryHoweverItIsWritten(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"below", "store"} { // Windows makes another link to what is not there yet
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	sep := string(filepath.Separator)
	opts := &disk.Options{Key: make([]byte, 32)}
	spellings := []string{
		"store", "./store", "store/", ".//store//", "below/../store", "./below/.././store/.",
		filepath.Join(here, "store"), here + sep + sep + "store" + sep, here + sep + "." + sep + "store", "." + sep + "store" + sep,
	}
	if linked(t) {
		spellings = append(spellings, "link", "./link/")
	}
	for i, dir := range append(spellings, spellings[0]) {
		store, err := disk.Open(t.Context(), dir, opts)
		if err != nil {
			t.Fatalf("Open(%q) after the spellings %q: %v", dir, spellings[:min(i, len(spellings))], err)
		}
		record := registries.Registry{ID: "r" + string(rune('a'+i)), Name: dir, Owner: "me"}
		if err := store.Registries().Create(t.Context(), record, registries.Credential{Username: "u", Password: "p"}); err != nil {
			t.Fatal(err)
		}
		if list, err := store.Registries().List(t.Context(), "me"); err != nil || len(list) != i+1 {
			t.Errorf("Open(%q) has %d records, %v, want %d", dir, len(list), err, i+1)
		}
		backup := "." + sep + sep + "copy" + record.ID + sep
		if err := store.Backup(t.Context(), backup); err != nil {
			t.Errorf("Backup(%q) of %q: %v", backup, dir, err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if r, err := disk.Check(t.Context(), dir, opts); err != nil || len(r.Faults) > 0 {
			t.Errorf("Check(%q) = %v, %v, want no faults", dir, r.Faults, err)
		}
		if r, err := disk.Repair(t.Context(), dir, opts); err != nil || len(r.Faults) > 0 {
			t.Errorf("Repair(%q) = %v, %v, want no faults", dir, r.Faults, err)
		}
		if err := disk.Restore(t.Context(), backup, "."+sep+"again"+record.ID+sep, opts); err != nil {
			t.Errorf("Restore of %q: %v", backup, err)
		}
		if r, err := disk.Check(t.Context(), "again"+record.ID, opts); err != nil || len(r.Faults) > 0 {
			t.Errorf("Check of what was restored = %v, %v, want no faults", r.Faults, err)
		}
	}
}

// linked makes a link to the store, and reports whether this system follows it.
func linked(t *testing.T) bool {
	t.Helper()
	if err := os.Symlink("store", "link"); err != nil {
		t.Logf("this system makes no links: %v", err)
		return false
	}
	a, err := os.Stat("store")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.Stat("link")
	if err != nil || !os.SameFile(a, b) {
		t.Logf("this system does not follow links: %v", err)
		return false
	}
	return true
}

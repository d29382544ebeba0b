package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/podyard/podyard/internal/suite"
)

// A copy that is made while clients submit jobs has every job that was acknowledged before
// the copy began.
func TestAServerIsBackedUpWhileItRuns(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	data, backup := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	in := start(t, "-data", data, "-config", file(t, `{"keys":[{"key":"exempt","user":"one","scopes":["*"],"exempt":true}]}`))
	in.key = "exempt" // the clients submit as fast as they can
	var acknowledged sync.Map
	var done atomic.Bool
	var clients sync.WaitGroup
	submit := func() {
		j := get[job](in, "POST", "/v2/echo/run", `{"input":{"a":1}}`, http.StatusOK)
		acknowledged.Store(j.ID, true)
	}
	for range 4 {
		clients.Go(func() {
			for !done.Load() && !t.Failed() {
				submit()
			}
		})
	}
	for range 50 {
		submit()
	}
	var before []string
	acknowledged.Range(func(id, _ any) bool {
		before = append(before, id.(string))
		return true
	})
	out, err := command(t, nil, "-data", data, "-backup", backup).CombinedOutput()
	done.Store(true)
	clients.Wait()
	if err != nil || !strings.Contains(string(out), "copied to "+backup) {
		t.Fatalf("-backup beside the server: %s, %v", out, err)
	}
	if text := refused(t, nil, "-data", data, "-backup", backup); !strings.Contains(text, "exists") {
		t.Errorf("a second backup to the same directory: %q, want that it exists", text)
	}
	if info, err := os.Stat(filepath.Join(data, "control", "server.sock")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v, want mode 0600", info, err)
	}
	if info, err := os.Stat(filepath.Join(data, "control")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory of the socket: %v, %v, want mode 0700", info, err)
	}

	restored := restoreBackup(t, data, backup)
	again := start(t, "-data", restored)
	for _, id := range before {
		get[job](again, "GET", "/v2/echo/status/"+id, "", http.StatusOK)
	}
	t.Logf("%d jobs were acknowledged before the copy", len(before))
}

// The name of a socket is limited to about 100 bytes, that of a directory is not.
func TestABackupBesideAServerWithALongDataDirectory(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), strings.Repeat("long/", 30), "data")
	backup := filepath.Join(t.TempDir(), "backup")
	in := start(t, "-data", data)
	if out, err := command(t, nil, "-data", data, "-backup", backup).CombinedOutput(); err != nil {
		t.Errorf("-backup beside the server: %s, %v", out, err)
	}
	in.stop()
	if out, err := command(t, nil, "-data", data, "-backup", backup+"2").CombinedOutput(); err != nil {
		t.Errorf("-backup without the server: %s, %v", out, err)
	}
}

// restoreBackup makes a data directory of a backup, with the key of the server that was copied.
func restoreBackup(t *testing.T, data, backup string) (restored string) {
	t.Helper()
	restored = filepath.Join(t.TempDir(), "restored")
	if text := refused(t, nil, "-data", restored, "-restore", backup); !strings.Contains(text, "there is no key") {
		t.Errorf("a restore without the key: %q, want what is missing", text)
	}
	key, err := os.ReadFile(filepath.Join(data, "secret-key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(backup, "secret-key"), key, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := command(t, nil, "-data", restored, "-restore", backup, "-check").CombinedOutput()
	if err != nil || !strings.Contains(string(out), " 0 faults") || !strings.Contains(string(out), "restored from "+backup) {
		t.Fatalf("-restore: %s, %v", out, err)
	}
	if text := refused(t, nil, "-data", restored, "-restore", backup); !strings.Contains(text, "there is a store already") {
		t.Errorf("a second restore: %q, want that there is a store", text)
	}
	return restored
}

// A copy that has lost something is not put in place.
func TestADamagedBackupIsNotRestored(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	data, backup := withTables(t), filepath.Join(t.TempDir(), "copy")
	if out, err := command(t, nil, "-data", data, "-backup", backup).CombinedOutput(); err != nil {
		t.Fatalf("-backup: %s, %v", out, err)
	}
	ruinTables(t, filepath.Join(backup, "store"))
	restored := filepath.Join(t.TempDir(), "restored")
	b, err := os.ReadFile(filepath.Join(data, "secret-key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(backup, "secret-key"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := command(t, nil, "-data", restored, "-restore", backup).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "damaged") {
		t.Errorf("-restore of a damaged copy: %s, %v, want that it is refused", out, err)
	}
	if left, err := filepath.Glob(filepath.Join(restored, "store")); err != nil || len(left) > 0 {
		t.Errorf("a restore that was refused left %s, %v", left, err)
	}
}

// withTables is the data directory of a server that has ended, with tables in its store.
func withTables(t *testing.T) (data string) {
	t.Helper()
	data = t.TempDir()
	for range 2 { // the second opening makes tables of what the first has in its log
		in := start(t, "-data", data)
		get[job](in, "POST", "/v2/echo/runsync", `{"input":{"a":1}}`, http.StatusOK)
		in.stop()
	}
	return data
}

// ruinTables cuts off half of every table of a store.
func ruinTables(t *testing.T, store string) {
	t.Helper()
	tables, err := filepath.Glob(filepath.Join(store, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("the tables are %s, %v", tables, err)
	}
	for _, name := range tables {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, info.Size()/2); err != nil {
			t.Fatal(err)
		}
	}
}

// A check names what is lost and exits with 1; a repair drops it, and a second one finds
// nothing. Both are refused beside a server.
func TestADamagedStoreIsCheckedAndRepaired(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	data := withTables(t)
	in := start(t, "-data", data)
	for _, flag := range []string{"-check", "-repair"} {
		if text := refused(t, nil, "-data", data, flag); !strings.Contains(text, "another server uses this directory") {
			t.Errorf("%s beside the server: %q, want that the directory is in use", flag, text)
		}
	}
	in.stop()
	ruinTables(t, filepath.Join(data, "store"))
	for range 2 { // a check changes nothing
		out, err := command(t, nil, "-data", data, "-check").Output()
		if err == nil || !strings.Contains(string(out), ".sst: what it had of the keys from ") {
			t.Errorf("-check: %s, %v, want the tables, and an error", out, err)
		}
	}
	out, err := command(t, nil, "-data", data, "-repair").Output()
	if err != nil || !strings.Contains(string(out), ".sst: what it had of the keys from ") {
		t.Errorf("-repair: %s, %v, want the tables, and no error", out, err)
	}
	for _, flag := range []string{"-repair", "-check"} {
		if out, err := command(t, nil, "-data", data, flag).Output(); err != nil || !strings.Contains(string(out), " 0 faults") {
			t.Errorf("%s after the repair: %s, %v, want no faults", flag, out, err)
		}
	}
	in = start(t, "-data", data)
	get[job](in, "POST", "/v2/echo/runsync", `{"input":{"a":2}}`, http.StatusOK)
}

// A key that is not the store's is noticed at the start. A repair drops what is sealed with the
// lost one, by name, and does not touch a file that is a key.
func TestALostSecretKeyIsRepaired(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ruin    func(key []byte) []byte // nil: removed
		refused string
		kept    string // the file that has the ruined key after the repair
	}{
		"another":   {func([]byte) []byte { return []byte("OTEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=") }, "the key is not the one", "secret-key"},
		"a bit":     {func(key []byte) []byte { return append([]byte{key[0] ^ 1}, key[1:]...) }, "key", ""},
		"missing":   {func([]byte) []byte { return nil }, "there is a store, and not the key", ""},
		"cut off":   {func(key []byte) []byte { return key[:7] }, "is not the base64 of 32 bytes", "secret-key.damaged"},
		"no base64": {func([]byte) []byte { return []byte("!") }, "is not the base64 of 32 bytes", "secret-key.damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			file := filepath.Join(data, "secret-key")
			in := start(t, "-data", data)
			get[any](in, "POST", "/v2/registries", `{"name":"mine","username":"u","password":"hush-hush"}`, http.StatusCreated)
			in.stop()
			key, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			ruined := tt.ruin(key)
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if ruined != nil {
				if err := os.WriteFile(file, ruined, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if text := refused(t, nil, "-data", data, "-addr", "127.0.0.1:0"); !strings.Contains(text, tt.refused) {
				t.Errorf("the start: %q, want %q", text, tt.refused)
			}
			out, err := command(t, nil, "-data", data, "-repair").CombinedOutput()
			if err != nil || !strings.Contains(string(out), "the secret key: ") || !strings.Contains(string(out), "its credential cannot be opened") {
				t.Errorf("-repair: %s, %v, want the key and the registry", out, err)
			}
			if tt.kept != "" {
				if b, err := os.ReadFile(filepath.Join(data, tt.kept)); err != nil || string(b) != string(ruined) {
					t.Errorf("%s is %q, %v, want it as it was", tt.kept, b, err)
				}
			}
			if out, err := command(t, nil, "-data", data, "-check").CombinedOutput(); err != nil || !strings.Contains(string(out), " 0 faults") {
				t.Errorf("-check after the repair: %s, %v", out, err)
			}
			in = start(t, "-data", data)
			get[any](in, "POST", "/v2/registries", `{"name":"mine","username":"u","password":"hush-hush"}`, http.StatusCreated)
		})
	}
}

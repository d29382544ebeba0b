package process

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
)

// ruledUsers are users with their rules.
type ruledUsers struct {
	users
	userRules
}

func (u *ruledUsers) use(owner string, image Image, f func(*identity) error) error {
	return u.users.use(&u.userRules, owner, image, f)
}

func (u *ruledUsers) mayBe(name, owner string) error { return u.users.mayBe(&u.userRules, name, owner) }

// newUsers returns the users of a directory, with count numbers for owners.
func newUsers(t *testing.T, dir string, count uint32) *ruledUsers {
	t.Helper()
	u := &ruledUsers{userRules: userRules{
		numbers: UIDRange{First: uids.First, Count: count}, names: map[string]identity{}, confined: true,
	}}
	if err := layout(dir).make(); err != nil {
		t.Fatal(err)
	}
	if err := u.open(layout(dir)); err != nil {
		t.Fatal(err)
	}
	return u
}

// of returns the number of an owner, or an error.
func (u *ruledUsers) of(owner string) (uid uint32, err error) {
	err = u.use(owner, Image{}, func(id *identity) error {
		uid = id.UID
		return nil
	})
	return uid, err
}

func wantUID(t *testing.T, u *ruledUsers, owner string, want uint32) {
	t.Helper()
	if got, err := u.of(owner); err != nil || got != want {
		t.Errorf("%s is user %d, %v, want %d", owner, got, err, want)
	}
}

func wantNoUID(t *testing.T, u *ruledUsers, owner, why string) {
	t.Helper()
	if got, err := u.of(owner); err == nil || !strings.Contains(err.Error(), "are taken") {
		t.Errorf("%s is user %d, %v, want none, because %s", owner, got, err, why)
	}
}

func TestEachOwnerHasAUserOfItsOwnForGood(t *testing.T) {
	dir := t.TempDir()
	for range 2 { // the second time from the record
		u := newUsers(t, dir, 3)
		wantUID(t, u, "alice", uids.First)
		wantUID(t, u, "bob", uids.First+1)
		wantUID(t, u, "", uids.First+2)
		wantUID(t, u, "alice", uids.First)
	}
}

func TestAUserIsGivenToAnotherOwnerWhenNothingOfItIsLeft(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files to users")
	}
	dir := t.TempDir()
	u := newUsers(t, dir, 1)
	wantUID(t, u, "alice", uids.First)
	volume := layout(dir).at("volumes", "v")
	if err := os.Mkdir(volume, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := give(volume, identity{uids.First, uids.First}); err != nil {
		t.Fatal(err)
	}
	wantNoUID(t, u, "bob", "alice has a volume")
	if err := os.Remove(volume); err != nil {
		t.Fatal(err)
	}
	run := exec.Command(selfPath, "run")
	run.Env = []string{asProgram + "=1"}
	run.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uids.First, Gid: uids.First}}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	wantNoUID(t, u, "bob", "a process of alice runs")
	if err := run.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = run.Wait() // it was killed
	wantUID(t, u, "bob", uids.First)
}

func TestAUserThatMayHaveFilesAnywhereIsNeverGivenAgain(t *testing.T) {
	dir := t.TempDir()
	u := newUsers(t, dir, 1)
	u.confined = false
	wantUID(t, u, "alice", uids.First)
	u = newUsers(t, dir, 1)
	wantUID(t, u, "alice", uids.First)
	wantNoUID(t, u, "bob", "alice once wrote where it liked")
}

func TestAnImagesUserIsOfOneOwner(t *testing.T) {
	u := newUsers(t, t.TempDir(), 0)
	u.names["www"] = identity{1234, 1235}
	image := Image{User: "www"}
	for range 2 {
		if err := u.use("alice", image, func(id *identity) error {
			if *id != (identity{1234, 1235}) {
				t.Errorf("alice is %+v", *id)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for owner, ok := range map[string]bool{"alice": true, "bob": false, "": false} {
		if err := u.mayBe("www", owner); (err == nil) != ok {
			t.Errorf("%q may be the user: %v, want %t", owner, err, ok)
		}
		if err := u.use(owner, image, func(*identity) error { return nil }); (err == nil) != ok {
			t.Errorf("%q is the user: %v, want %t", owner, err, ok)
		}
	}
}

func TestUsersThatCannotBeAreRefused(t *testing.T) {
	for name, image := range map[string]Image{
		"root":           {User: "root"},
		"root by number": {User: "0"},
		"nobody we know": {User: "no-such-user-here"},
		"one of owners":  {User: strconv.Itoa(int(uids.First) + 1)},
	} {
		if _, err := newUserRules(uids, map[string]Image{"i": image}); err == nil {
			t.Errorf("an image with the user %s is taken", name)
		}
	}
	for _, r := range []UIDRange{{0, 5}, {1<<32 - 1, 1}, {1<<32 - 5, 5}, {1<<32 - 5, 100}} {
		if err := r.Check(); err == nil {
			t.Errorf("the range %+v is taken", r)
		}
	}
	if err := (UIDRange{1<<32 - 5, 4}).Check(); err != nil {
		t.Errorf("the last four numbers: %v", err)
	}
}

// A volume or a mount may be older than the setting for users.
func TestOldFilesBecomeTheUsers(t *testing.T) {
	suite.SkipUnlessLong(t)
	if os.Geteuid() != 0 {
		t.Skip("only root gives files to users")
	}
	dir := t.TempDir()
	counts := program("count")
	counts.Owner, counts.Mounts = "alice", []pods.Mount{{Path: "/m", Size: 10}, {VolumeID: "v", Path: "/v"}}
	rt := open(t, dir)
	ensure(t, rt, spec("a", counts))
	awaitLine(t, rt, "a", "counted")
	if err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	rt = open(t, dir, isolated(true))
	s := spec("a", counts)
	s.Run = 2
	ensure(t, rt, s)
	if got := strings.Join(linesUntil(t, rt, "a", 2), " "); !strings.Contains(got, "disk 2 mount 2 mount 2") {
		t.Errorf("with a user of its own the pod says %q", got)
	}
}

// linesUntil returns the lines of a pod until it has printed "counted" so many times.
func linesUntil(t *testing.T, rt *Runtime, id string, times int) (all []string) {
	t.Helper()
	for line, err := range rt.Logs(t.Context(), id, pods.LogQuery{Tail: -1, Follow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, line.Text); line.Text == "counted" {
			if times--; times == 0 {
				return all
			}
		}
	}
	return all
}

package process

import (
	"fmt"
	"os"
	"os/exec"
	"slices"

	"github.com/podyard/podyard/backend/process/internal/supervise"
)

// probe finds out whether this program can be launched, and whether bubblewrap works: a unit or
// an AppArmor profile may forbid it. It tries what pods get.
func (i *isolator) probe(users []*supervise.Identity) error {
	if err := missing("/proc/self/exe", os.DevNull); err != nil {
		return err
	}
	dir := i.root.at("probe")
	if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // users of pods go there
		return err
	}
	defer func() { _ = os.Remove(dir) }() // the next probe uses it
	p := supervise.Plan{Launch: i.opts.Launch, Dir: "/", Probe: true}
	if n := slices.IndexFunc(users, func(id *supervise.Identity) bool { return id != nil }); n >= 0 {
		p.User = users[n]
	}
	if err := supervise.Try(&p); err != nil {
		return fmt.Errorf("start this program with %q as a launcher of pods: %w", i.opts.Launch, err)
	}
	if i.opts.Mode == ModeNone {
		return nil
	}
	hide, err := i.hidden()
	if err != nil {
		return err
	}
	path, err := exec.LookPath("bwrap")
	if err == nil {
		p.Dir, p.Bwrap = dir, bwrapArgs(path, hide, []string{dir}, nil, defaultShm)
		err = supervise.Try(&p)
	}
	switch {
	case err == nil:
		i.bwrap = path
	case i.opts.Mode == ModeRequired:
		return fmt.Errorf("bubblewrap is required and does not work: %w", err)
	default:
		i.lacks = append(i.lacks, fmt.Sprintf("bubblewrap (%v)", err))
	}
	return nil
}

// missing names a file that every pod needs and that this system does not have, as in a container
// whose image nobody has tried: what a launcher says of it names neither the file nor the cause.
func missing(paths ...string) error {
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("processes cannot be started here, because %s is missing: are /proc and /dev mounted? %w", path, err)
		}
	}
	return nil
}

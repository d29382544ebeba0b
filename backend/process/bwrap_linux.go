package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
)

// probe finds out whether this program can be launched, and whether bubblewrap works: a unit or
// an AppArmor profile may forbid it. It tries what pods get.
func (i *isolator) probe(users []*identity) error {
	dir := i.root.at("probe")
	if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // users of pods go there
		return err
	}
	defer os.Remove(dir)
	p := plan{Launch: i.opts.Launch, Dir: "/", Probe: true}
	if n := slices.IndexFunc(users, func(id *identity) bool { return id != nil }); n >= 0 {
		p.User = users[n]
	}
	if err := try(&p); err != nil {
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
		err = try(&p)
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

// try runs the stages of a plan up to the program. Its error has what bubblewrap says.
func try(p *plan) error {
	runtime.LockOSThread() // which bubblewrap wants to live
	defer runtime.UnlockOSThread()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	said := make(chan []byte, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(r, 1<<10)) // it is only for the log
		said <- text
	}()
	cmd, err := startStage(p, w)
	_ = w.Close() // nothing was written to it here
	if err == nil {
		err = cmd.Wait()
	}
	if text := strings.TrimSpace(string(<-said)); err != nil && text != "" {
		err = errors.New(text)
	}
	return err
}

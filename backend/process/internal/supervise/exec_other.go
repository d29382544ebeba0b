//go:build !linux

package supervise

import (
	"errors"
	"os"
	"syscall"
)

var errNoTerminal = errors.New("terminals in pods of processes need Linux")

// Join starts a command beside a pod.
func (x *Proc) Join(c Command) (*Joined, error) {
	if _, err := x.first(); err != nil {
		return nil, err
	}
	cmd, err := joinDirectly(&c)
	if err != nil {
		return nil, err
	}
	j := &Joined{cmd: cmd, ended: make(chan struct{})}
	go j.wait()
	return j, nil
}

// Signal ends a command: KILL kills, and every other signal asks its group to end.
func (j *Joined) Signal(name string) {
	if name == "KILL" {
		j.SignalAll()
		return
	}
	terminateGroup(j.cmd.Process.Pid)
}

// SignalAll kills the group of the command.
func (j *Joined) SignalAll() {
	killGroup(j.cmd.Process.Pid)
	_ = j.cmd.Process.Kill() // it has ended
}

func environmentOf(int) ([]string, error) { return nil, nil }

// UserOf is for Linux.
func (x *Proc) UserOf() (*Identity, error) { return nil, errors.New("its user is not known") }

func ownTerminal(*syscall.SysProcAttr) {}

// OpenTerminal is for Linux.
func OpenTerminal(*Identity, uint16, uint16) (master, slave *os.File, err error) {
	return nil, nil, errNoTerminal
}

// SetSize is for Linux.
func SetSize(*os.File, uint16, uint16) error { return errNoTerminal }

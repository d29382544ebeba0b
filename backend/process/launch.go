package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// A plan is what the launcher is to make of itself. It comes over a pipe, and not in args
// or environment: these are for everybody to read.
type plan struct {
	Program string   `json:"program"` // path; empty: this program
	Argv    []string `json:"argv"`
	Env     []string `json:"env"`
	Dir     string   `json:"dir"`

	User *identity `json:"user"` // nil: the server's

	Cgroups []string `json:"cgroups"` // directories of those that it joins
	Own     []string `json:"own"`     // directories of the pod: seen and written to in any case

	Hide     []string `json:"hide"`
	Writable []string `json:"writable"`

	// What the host permits, by the probe.
	Mounts     bool `json:"mounts"`
	HiddenPIDs bool `json:"hiddenPIDs"`
	Landlock   int  `json:"landlock"` // version of its interface; 0: there is none
	DropCaps   bool `json:"dropCaps"`

	Processes int `json:"processes"` // limit of its user's, where no cgroup limits them; 0: none

	// Probe asks what the host permits, with Own as a directory to try it on; nothing is run.
	Probe bool `json:"probe"`
}

// An answer is what the launcher says: nothing when it has become the program.
type answer struct {
	// Of what failed: what was done, with which file, and the number of the system's error.
	Op    string `json:"op,omitempty"`
	Path  string `json:"path,omitempty"`
	Errno int    `json:"errno,omitempty"`
	Text  string `json:"text,omitempty"`

	// Of a probe.
	Probed   bool  `json:"probed,omitempty"`
	Lacks    lacks `json:"lacks,omitempty"`
	Landlock int   `json:"landlock,omitempty"`
}

// answerFor is err as an answer.
func answerFor(err error) answer {
	a := answer{Text: err.Error()}
	var path *fs.PathError
	if errors.As(err, &path) {
		a.Op, a.Path, a.Text = path.Op, path.Path, path.Err.Error()
	}
	var number syscall.Errno
	if errors.As(err, &number) {
		a.Errno = int(number)
	}
	return a
}

// err is what an answer says went wrong, so that paths can be told from the rest.
func (a answer) err() error {
	var cause error
	switch {
	case a.Errno != 0:
		cause = syscall.Errno(a.Errno)
	case a.Text != "":
		cause = errors.New(a.Text)
	default:
		return nil
	}
	if a.Op == "" {
		return cause
	}
	return &fs.PathError{Op: a.Op, Path: a.Path, Err: cause}
}

// The descriptors of the launcher.
const (
	planFD   = 3
	answerFD = 4
)

// A launch is a launcher that was started.
type launch struct {
	plan   *os.File // ours to write
	answer *os.File // ours to read
	theirs []*os.File
}

// prepareLaunch makes cmd, which is not started yet, one that can be told its plan.
func prepareLaunch(cmd *exec.Cmd) (*launch, error) {
	planOut, planIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	answerOut, answerIn, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, planOut.Close(), planIn.Close())
	}
	cmd.ExtraFiles = []*os.File{planOut, answerIn}
	return &launch{plan: planIn, answer: answerOut, theirs: cmd.ExtraFiles}, nil
}

// started closes what the launcher has by now, or never will.
func (l *launch) started() {
	for _, f := range l.theirs {
		_ = f.Close() // nothing was written to it here
	}
}

// run tells the launcher its plan and returns its answer: at once when it fails or was
// asked, and an empty one when it has become the program.
func (l *launch) run(p plan) (answer, error) {
	defer l.answer.Close()
	deadline := time.Now().Add(launchTime)
	_ = errors.Join(l.plan.SetDeadline(deadline), l.answer.SetDeadline(deadline)) // without one it takes as long as it takes
	err := json.NewEncoder(l.plan).Encode(p)
	if err := errors.Join(err, l.plan.Close()); err != nil {
		return answer{}, fmt.Errorf("it did not take its plan: %w", err)
	}
	data, err := io.ReadAll(l.answer)
	if err != nil {
		return answer{}, err
	}
	var a answer
	if len(data) == 0 {
		return a, nil
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("its answer cannot be read: %w", err)
	}
	return a, nil
}

// abandon is for a launcher that did not start.
func (l *launch) abandon() {
	_ = errors.Join(l.plan.Close(), l.answer.Close())
}

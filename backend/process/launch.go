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

// A plan says what the launcher must do before it becomes the pod. It is sent over a pipe,
// because every user can read args and environments.
type plan struct {
	Program string   `json:"program"` // path; empty: this program
	Argv    []string `json:"argv"`
	Env     []string `json:"env"`
	Dir     string   `json:"dir"`

	User *identity `json:"user"` // nil: the server's

	Cgroups []string `json:"cgroups"` // directories of the cgroups that it joins
	Own     []string `json:"own"`     // directories of the pod, which it always sees and may write to

	Hide     []string `json:"hide"`
	Writable []string `json:"writable"`

	// What the host permits, as the probe found.
	Mounts     bool `json:"mounts"`
	HiddenPIDs bool `json:"hiddenPIDs"`
	Landlock   int  `json:"landlock"` // version of Landlock; 0: there is none
	DropCaps   bool `json:"dropCaps"`

	Processes int `json:"processes"` // limit of its user, where no cgroup limits them; 0: none

	// Probe only asks what the host permits; Own is a directory to try it on.
	Probe bool `json:"probe"`
}

// An answer is what the launcher reports. It is empty when the launcher has become the program.
type answer struct {
	// Of a failure: the operation, the file and the error number.
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

// err returns the failure as an error that has its paths apart, so that they can be removed.
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
	plan   *os.File // our end, for writing
	answer *os.File // our end, for reading
	theirs []*os.File
}

// prepareLaunch adds the pipes for plan and answer to cmd, which is not started yet.
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

// started closes the launcher's ends of the pipes.
func (l *launch) started() {
	for _, f := range l.theirs {
		_ = f.Close() // nothing was written to it here
	}
}

// run sends the plan and returns the answer, which is empty when the launcher has become the
// program.
func (l *launch) run(p plan) (answer, error) {
	defer l.answer.Close()
	deadline := time.Now().Add(launchTime)
	_ = errors.Join(l.plan.SetDeadline(deadline), l.answer.SetDeadline(deadline)) // without a deadline it may take longer
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

// abandon closes everything of a launcher that did not start.
func (l *launch) abandon() {
	_ = errors.Join(l.plan.Close(), l.answer.Close())
}

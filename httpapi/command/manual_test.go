package command_test

import (
	"os/exec"
	"strings"
	"testing"
)

func TestTheManualPageHasEveryCommandWithItsFlags(t *testing.T) {
	t.Parallel()
	s := &shell{t: t, env: map[string]string{"PODYARD_DATA": "postgres://user:secret@db.example/x"}}
	page, err := s.run("__manual")
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.NewReplacer(`\-`, "-", `\e`, `\`, `\(dq`, `"`, `\&`, "").Replace(page)
	for _, c := range program().Commands {
		if there := strings.Contains(plain, "\n.SS \""+strings.TrimSpace(c.Name+" "+c.Args)+"\"\n"); there == c.Hidden {
			t.Errorf("%s: in the page %t, hidden %t", c.Name, there, c.Hidden)
		}
	}
	for _, want := range []string{"\n.B -owner user\n", "\npodyard audit -refused -since 2d\n", "(default ./podyard-data)"} {
		if !strings.Contains(plain, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	if strings.Contains(page, "user:secret") {
		t.Error("the page has a value of the environment")
	}
	if _, err := exec.LookPath("groff"); err != nil {
		return
	}
	cmd := exec.CommandContext(t.Context(), "groff", "-ww", "-man", "-Tutf8")
	cmd.Stdin = strings.NewReader(page)
	var faults strings.Builder
	cmd.Stderr = &faults
	if out, err := cmd.Output(); err != nil || faults.Len() > 0 || len(out) == 0 {
		t.Errorf("groff: %v %s", err, faults.String())
	}
}

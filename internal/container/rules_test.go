package container_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/problem"
)

func TestEverySettingIsJudgedAtItsPlace(t *testing.T) {
	var faults problem.Violations
	v := container.Rules{Violations: &faults}
	v.Env(map[string]string{"": "x", "A=B": "x", "a/b": "\x00", "OK": "any = thing"})
	v.Ports([]string{"80/http", "0/tcp", "080/tcp", "80/http", "80/tcp", "65536/udp", "69999/tcp", "70000/udp", "80000/tcp", "80/sctp", "80"})
	name, image, args, disk := "", "a b", `a "b`, 0
	v.SetFields(nil, nil, container.CommandChange{}, nil)
	v.SetFields(&name, &image, container.CommandChange{Args: &args}, &disk)
	var got []string
	if e, ok := faults.Err([]string{"name", "image", "args", "disk", "ports", "env"}).(*problem.Error); ok {
		got = e.Errors
	}
	want := []string{
		"/name: must not be empty",
		"/image: must have no white space and no control characters",
		"/args: has a double quote that is not closed",
		"/disk: must be 1 to 1048576 GB",
		"/ports/1: must be port/protocol: 1 to 65535, and tcp, udp or http",
		"/ports/2: must be port/protocol: 1 to 65535, and tcp, udp or http",
		"/ports/3: 80/http is listed twice",
		"/ports/5: must be port/protocol: 1 to 65535, and tcp, udp or http",
		"/ports/6: must be port/protocol: 1 to 65535, and tcp, udp or http",
		"/ports/7: must be port/protocol: 1 to 65535, and tcp, udp or http",
		"/ports/8: must be port/protocol: 1 to 65535, and tcp, udp or http",
		"/ports/9: must be port/protocol: 1 to 65535, and tcp, udp or http",
		"/ports/10: must be port/protocol: 1 to 65535, and tcp, udp or http",
		"/env/: a variable must have a name",
		"/env/A=B: the name of a variable must have no '=' and no NUL byte",
		"/env/a~1b: the value of a variable must have no NUL byte",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestSettingsWithinTheRulesHaveNoFault(t *testing.T) {
	var faults problem.Violations
	v := container.Rules{Violations: &faults}
	v.Name("n")
	v.Image("registry.example/org/image:tag@sha256:" + strings.Repeat("0", 64))
	v.Command(container.CommandChange{Args: new(`run --name "a b"`)})
	v.Disk(container.MaxDisk)
	v.Ports([]string{"1/tcp", "1/udp", "65535/http", "70000/tcp", "79999/tcp"})
	v.Env(map[string]string{"A": ""})
	if err := faults.Err(nil); err != nil {
		t.Errorf("faults of settings within the rules: %v", err)
	}
}

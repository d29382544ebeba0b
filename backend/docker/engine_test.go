package docker

import "testing"

func TestTheFilterOfSystemCallsIsNeverOff(t *testing.T) {
	for _, c := range []struct {
		name string
		got  seccompMode
		want seccompMode
	}{
		{"Docker's own", dockerSeccomp([]string{"name=apparmor", "name=seccomp,profile=default"}), seccompOn},
		{"Docker with a profile of the operator", dockerSeccomp([]string{"name=seccomp,profile=/etc/docker/seccomp.json"}), seccompOn},
		{"Docker without a profile", dockerSeccomp([]string{"name=seccomp,profile=unconfined"}), seccompOff},
		{"Docker on a kernel without it", dockerSeccomp([]string{"name=apparmor"}), seccompMissing},
		{"Podman's own", podmanSeccomp(true, "/usr/share/containers/seccomp.json"), seccompOn},
		{"Podman without a profile", podmanSeccomp(true, "unconfined"), seccompMissing},
		{"Podman without it", podmanSeccomp(false, ""), seccompMissing},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.name, c.got, c.want)
		}
	}
	off := Runtime{engine: engine{seccomp: seccompOff}}
	if got := off.securityOptions(); len(got) != 2 || got[0] != "no-new-privileges" || got[1] != "seccomp=builtin" {
		t.Errorf("options of a container are %q, want that the engine's own profile is on", got)
	}
}

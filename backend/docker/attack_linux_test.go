package docker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/podyard/podyard/internal/enginetest"
)

// status are the fields of /proc/self/status that the program "can" prints, and its user.
func status(t *testing.T, rt *Runtime, id string) map[string]string {
	t.Helper()
	fields := map[string]string{}
	for _, line := range rt.lines(t, id, 4) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields
}

// The image is that of another user than root, and its program has the setuid bit of root.
func TestASetuidProgramInAContainerGivesNoRights(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		for _, c := range []struct {
			allow           bool
			user, noNewPriv string
		}{{false, "1000", "1"}, {true, "0", "0"}} {
			rt := open(t, d, t.TempDir(), func(o *Options) { o.AllowNewPrivileges = c.allow })
			s := spec("climber", program("can"))
			s.Image = setuid
			up(t, rt, s)
			got := status(t, rt, "climber")
			if got["user"] != c.user || got["NoNewPrivs"] != c.noNewPriv || got["Seccomp"] != "2" {
				t.Errorf("AllowNewPrivileges = %v: the program is user %s with NoNewPrivs %s and Seccomp %s, want %s, %s and 2",
					c.allow, got["user"], got["NoNewPrivs"], got["Seccomp"], c.user, c.noNewPriv)
			}
		}
	})
}

func TestContainersHaveNotAllCapabilitiesOfTheEngine(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		rt := open(t, d, t.TempDir())
		up(t, rt, spec("can", program("can")))
		var effective uint64
		if _, err := fmt.Sscanf(status(t, rt, "can")["CapEff"], "%x", &effective); err != nil {
			t.Fatal(err)
		}
		const netAdmin, netRaw, sysAdmin, mknod, setuid = 12, 13, 21, 27, 7
		if effective&(1<<netRaw|1<<mknod|1<<netAdmin|1<<sysAdmin) != 0 || effective&(1<<setuid) == 0 {
			t.Errorf("capabilities are %x, want SETUID, and no NET_RAW, MKNOD, NET_ADMIN and SYS_ADMIN", effective)
		}
	})
}

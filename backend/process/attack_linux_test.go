package process

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podyard/podyard/backend/process/internal/supervise"
)

// attack tries each attack "name=value" in args and prints "name=value: " and the result: "ok", or
// an error. At the end it prints "tried".
func attack(args []string) {
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		fmt.Printf("%s: %s\n", a, attacks[name](value))
	}
	fmt.Println("tried")
}

var attacks = map[string]func(string) string{
	"uid": func(string) string { return strconv.Itoa(os.Getuid()) + " " + strconv.Itoa(os.Getgid()) },
	"read": func(path string) string {
		_, err := os.ReadFile(path)
		return outcome(err)
	},
	"write": func(path string) string { return outcome(os.WriteFile(path, []byte("x"), 0o600)) },
	"chmod": func(path string) string { return outcome(os.Chmod(path, 0o777)) },
	"device": func(path string) string { // as root owns devices
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err == nil {
			err = f.Close()
		}
		return outcome(err)
	},
	"see": func(pid string) string {
		_, err := os.ReadFile("/proc/" + pid + "/cmdline")
		return outcome(err)
	},
	"signal": func(pid string) string {
		n, _ := strconv.Atoi(pid)
		return outcome(syscall.Kill(n, 0))
	},
	"mount":  func(path string) string { return outcome(unix.Mount("none", path, "tmpfs", 0, "")) },
	"setuid": func(string) string { return outcome(syscall.Setuid(0)) },
	"run": func(path string) string { // a program that would run as its owner
		out, err := exec.Command(path, "euid").CombinedOutput()
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(string(out))
	},
	"descriptor": func(fd string) string { // that the server has inherited
		n, _ := strconv.Atoi(fd)
		_, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0)
		return outcome(err)
	},
	"unix": func(path string) string {
		c, err := new(net.Dialer).DialContext(context.Background(), "unix", path)
		if err == nil {
			err = c.Close()
		}
		return outcome(err)
	},
	"truncate": func(string) string { return outcome(unix.Ftruncate(1, 15<<40)) },
	"allocate": func(string) string { return outcome(unix.Fallocate(1, unix.FALLOC_FL_KEEP_SIZE, 0, 1<<40)) },
	"shm": func(key string) string { // memory that stays
		n, _ := strconv.Atoi(key)
		id, err := unix.SysvShmGet(n, 4096, unix.IPC_CREAT|0o666)
		if err == nil {
			_, err = unix.SysvShmAttach(id, 0, 0)
		}
		return outcome(err)
	},
	"memory": func(mb string) string {
		n, _ := strconv.Atoi(mb)
		b := make([]byte, n<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		return "ok"
	},
	"processes": func(count string) string {
		n, _ := strconv.Atoi(count)
		for i := range n {
			cmd := exec.Command(supervise.SelfPath, "run")
			cmd.Env = os.Environ()
			if err := cmd.Start(); err != nil {
				return "only " + strconv.Itoa(i)
			}
		}
		return "ok"
	},
	"fill":      func(mb string) string { return fill(".", mb) },
	"mountfill": func(mb string) string { return fill(os.Getenv("PODYARD_MOUNT_0"), mb) },
	"unlinked": func(mb string) string { // a file without a name, which stays open
		n, _ := strconv.Atoi(mb)
		f, err := os.Create("gone")
		if err == nil {
			_, err = f.Write(make([]byte, n<<20))
		}
		kept = append(kept, f)
		return outcome(firstOf(err, os.Remove("gone")))
	},
	"inodes": func(count string) string {
		n, _ := strconv.Atoi(count)
		for i := range n {
			if err := os.WriteFile("f"+strconv.Itoa(i), nil, 0o600); err != nil {
				return err.Error()
			}
		}
		return "ok"
	},
	"deep": func(levels string) string { // directories that no path can name
		n, _ := strconv.Atoi(levels)
		here, err := os.Getwd()
		for range n {
			if err == nil {
				err = unix.Mkdir("d", 0o700)
			}
			if err == nil {
				err = unix.Chdir("d")
			}
		}
		return outcome(firstOf(err, unix.Chdir(here)))
	},
}

var kept []*os.File // so that they stay open

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func fill(dir, mb string) string {
	n, _ := strconv.Atoi(mb)
	dir = filepath.Join(dir, "below")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err.Error()
	}
	for i := range n { // one file may be limited
		if err := os.WriteFile(filepath.Join(dir, "file"+strconv.Itoa(i)), make([]byte, 1<<20), 0o600); err != nil {
			return err.Error()
		}
	}
	return "ok"
}

func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return err.Error()
}

// waitFor waits for a file.
func waitFor(path string) {
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

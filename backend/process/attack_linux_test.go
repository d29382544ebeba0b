package process

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attack tries each attack "name=value" in args and prints "name: " and the result: "ok", or an
// error. At the end it prints "tried".
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
	"readOnce": func(value string) string { // a file, once another one is there
		path, sign, _ := strings.Cut(value, ",")
		for range 1000 {
			if _, err := os.Stat(sign); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		_, err := os.ReadFile(path)
		return outcome(err)
	},
	"list": func(value string) string { // a directory, and something in it
		path, name, _ := strings.Cut(value, ",")
		list, err := os.ReadDir(path)
		if err == nil && !slices.ContainsFunc(list, func(e os.DirEntry) bool { return e.Name() == name }) {
			return "it is not there"
		}
		return outcome(err)
	},
	"write": func(path string) string { return outcome(os.WriteFile(path, []byte("x"), 0o600)) },
	"see": func(pid string) string {
		_, err := os.ReadFile("/proc/" + pid + "/cmdline")
		return outcome(err)
	},
	"environ": func(pid string) string {
		_, err := os.ReadFile("/proc/" + pid + "/environ")
		return outcome(err)
	},
	"root": func(value string) string { // of a process, and a file
		pid, path, _ := strings.Cut(value, ",")
		_, err := os.ReadFile("/proc/" + pid + "/root" + path)
		return outcome(err)
	},
	"signal": func(pid string) string {
		n, _ := strconv.Atoi(pid)
		return outcome(syscall.Kill(n, 0))
	},
	"ptrace": func(pid string) string {
		runtime.LockOSThread() // a tracer is a thread
		defer runtime.UnlockOSThread()
		n, _ := strconv.Atoi(pid)
		err := unix.PtraceSeize(n)
		if err == nil { // let go at once: each signal stops a process that is traced
			err = unix.PtraceInterrupt(n)
			_, werr := syscall.Wait4(n, nil, unix.WALL, nil)
			err = errors.Join(err, werr, unix.PtraceDetach(n))
		}
		return outcome(err)
	},
	"unmount": func(path string) string { return outcome(unix.Unmount(path, unix.MNT_DETACH)) },
	"mount": func(path string) string {
		err := unix.Mount("none", path, "tmpfs", 0, "")
		if err == nil {
			err = unix.Unmount(path, 0)
		}
		return outcome(err)
	},
	"setuid": func(string) string { return outcome(syscall.Setuid(0)) },
	"limit": func(string) string {
		return outcome(unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1}))
	},
	"run": func(path string) string { // a program that would run as its owner
		out, err := exec.Command(path, "euid").CombinedOutput()
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(string(out))
	},
	"unshare": func(path string) string { // as root of a user namespace, reads below a mount
		cmd := exec.Command(selfPath, "attack", "unmount="+path, "list="+path+",secret-key")
		cmd.Env = os.Environ()
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			return err.Error()
		}
		var said []string
		for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "tried"; {
			said = append(said, lines.Text())
		}
		_ = cmd.Process.Kill()
		return strings.Join(said, ", ")
	},
	"daemon": func(string) string { // a process in its own session, with an empty environment and no parent
		cmd := exec.Command(selfPath, "daemon")
		cmd.Env = []string{asProgram + "=1"}
		cmd.SysProcAttr = newSession()
		out, err := cmd.Output()
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(string(out))
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
			cmd := exec.Command(selfPath, "run")
			cmd.Env = os.Environ()
			if err := cmd.Start(); err != nil {
				return "only " + strconv.Itoa(i)
			}
		}
		return "ok"
	},
	"dial": func(address string) string { return greeted(new(net.Dialer), "tcp", address) },
	"mptcp": func(address string) string {
		d := new(net.Dialer)
		d.SetMultipathTCP(true)
		return greeted(d, "tcp", address)
	},
	"udp":  func(address string) string { return greeted(new(net.Dialer), "udp", address) },
	"unix": func(path string) string { return greeted(new(net.Dialer), "unix", path) },
	"packet": func(string) string { // the packets of others
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err == nil {
			err = unix.Close(fd)
		}
		return outcome(err)
	},
	"fill":      func(mb string) string { return fill(".", mb) },
	"mountfill": func(mb string) string { return fill(os.Getenv("PODYARD_MOUNT_0"), mb) },
}

// greeted connects to a greeter, and returns whether it says hello.
func greeted(d *net.Dialer, network, address string) string {
	d.Timeout = 10 * time.Second
	c, err := d.Dial(network, address)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(d.Timeout)) // without one it waits until the test ends
	if network == "udp" {
		if _, err := c.Write([]byte("hello")); err != nil {
			return err.Error()
		}
	}
	_, err = c.Read(make([]byte, 1))
	return outcome(err)
}

func fill(dir, mb string) string {
	n, _ := strconv.Atoi(mb)
	dir = filepath.Join(dir, "below")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err.Error()
	}
	return outcome(os.WriteFile(filepath.Join(dir, "file"), make([]byte, n<<20), 0o600))
}

func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return err.Error()
}

// daemon leaves a child and ends.
func daemon() {
	cmd := exec.Command(selfPath, "run")
	cmd.Env = []string{asProgram + "=1"}
	cmd.SysProcAttr = newSession()
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	fmt.Println(cmd.Process.Pid)
	os.Exit(0)
}

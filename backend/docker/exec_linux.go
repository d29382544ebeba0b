package docker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

// signalMarked sends a signal to the oldest process with a variable in its environment, or to all. It
// reports whether there was one among the processes of this machine that this program can see.
func signalMarked(variable, signal string, all bool) bool {
	number := unix.SignalNum("SIG" + signal)
	entries, err := os.ReadDir("/proc")
	if err != nil || number == 0 {
		return false
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && hasVariable(pid, variable) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	if !all && len(pids) > 1 {
		pids = pids[:1]
	}
	found := false
	for _, pid := range pids {
		if p, err := os.FindProcess(pid); err == nil { // a handle, so that it is no later process
			if hasVariable(pid, variable) {
				found = p.Signal(number) == nil || found
			}
			_ = p.Release() // nothing is lost
		}
	}
	return found
}

func hasVariable(pid int, variable string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && slices.ContainsFunc(bytes.Split(env, []byte{0}), func(v []byte) bool { return string(v) == variable })
}

var errNoDial = problem.New(problem.NotImplemented, "ports of this pod are not forwarded: its network is not one of this server's machine")

// dialTime is how long a connection inside a pod may take.
const dialTime = 10 * time.Second

// dial connects inside the network of the container. What it reaches is what the container reaches.
func (p *pod) dial(ctx context.Context, address string, s pods.Streams) error {
	conn, err := p.dialInside(ctx, address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	go func() { // the caller ends it: see pods.Streams
		if s.Stdin != nil {
			_, _ = io.Copy(conn, s.Stdin) // the other side has closed
		}
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	_, err = io.Copy(s.Stdout, conn)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if isConnectionError(err) {
		return nil // the other side's end
	}
	return err
}

func (p *pod) dialInside(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, problem.New(problem.Invalid, "the address must be host:port")
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip := net.ParseIP(host)
	if ip == nil {
		return nil, problem.New(problem.Invalid, "a port of a pod is named by localhost or an IP address")
	}
	c, err := p.r.api.ContainerInspect(ctx, p.name(), client.ContainerInspectOptions{})
	if err != nil {
		return nil, err
	}
	if c.Container.State == nil || c.Container.State.Pid <= 0 {
		return nil, pods.ErrNotRunning
	}
	conn, err := dialFrom(ctx, c.Container.State.Pid, "PODYARD_POD_ID="+p.id, net.JoinHostPort(ip.String(), port))
	if _, refused := errors.AsType[*net.OpError](err); refused {
		return nil, problem.New(problem.BadGateway, "nothing answers at this port of the pod")
	}
	return conn, err
}

// dialFrom connects in the network of a process, which has a variable. The thread that was there is
// not used for anything else.
func dialFrom(ctx context.Context, pid int, variable, address string) (conn net.Conn, err error) {
	ns, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/net")
	if err != nil || !hasVariable(pid, variable) { // the engine's numbers are of another machine
		if ns != nil {
			_ = ns.Close() // it was only opened
		}
		return nil, errNoDial
	}
	defer ns.Close()
	var done sync.WaitGroup
	done.Go(func() {
		runtime.LockOSThread() // and not unlocked, so that the thread ends with this goroutine
		if unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET) != nil {
			err = errNoDial
			return
		}
		conn, err = dialHere(ctx, address)
	})
	done.Wait()
	return conn, err
}

// dialHere connects with a socket that the calling thread makes: a Dialer may use another one.
func dialHere(ctx context.Context, address string) (net.Conn, error) {
	to, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: to.Port, Addr: [16]byte(to.IP.To16())})
	if v4 := to.IP.To4(); v4 != nil {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(v4)}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), "pod")
	defer f.Close() // FileConn has a copy
	if err := connected(ctx, f, fd, sa); err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: to, Err: err}
	}
	return net.FileConn(f)
}

// connected waits for a connection.
func connected(ctx context.Context, f *os.File, fd int, sa unix.Sockaddr) error {
	err := unix.Connect(fd, sa)
	if !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	until := time.Now().Add(dialTime)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 100)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, unix.EINTR), err == nil && n == 0 && time.Now().Before(until):
			continue
		case err != nil:
			return err
		case n == 0:
			return os.ErrDeadlineExceeded
		}
		number, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		runtime.KeepAlive(f)
		if err == nil && number != 0 {
			err = syscall.Errno(number)
		}
		return err
	}
}

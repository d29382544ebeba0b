// Program is what containers of the tests run.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/podyard/podyard/internal/insideprogram"
)

func main() {
	name, args := os.Args[1], os.Args[2:]
	if name == "inside" {
		os.Exit(insideprogram.Run(os.Args[:2], args))
	}
	stop := make(chan os.Signal, 1)
	if name != "stubborn" {
		signal.Notify(stop, syscall.SIGTERM)
	}
	switch name {
	case "run":
	case "stubborn":
		signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM) // which nobody reads
		write("/deaf", "")
	case "deaf":
		if _, err := os.Stat("/deaf"); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	case "exit":
		os.Exit(number(args[0]))
	case "print":
		out := bufio.NewWriter(os.Stdout)
		for i := range number(args[0]) {
			fmt.Fprintf(out, "line %d\n", i+1)
		}
		out.Flush()
	case "long":
		fmt.Println(strings.Repeat("x", number(args[0])))
		fmt.Fprintln(os.Stderr, "after")
	case "tell":
		tell(args)
	case "count":
		count("disk", "/")
		for _, dir := range args {
			count("mount", dir)
		}
		fmt.Println("counted")
	case "size":
		var disk syscall.Statfs_t
		if err := syscall.Statfs("/", &disk); err != nil {
			panic(err)
		}
		fmt.Println(disk.Blocks * uint64(disk.Bsize))
	case "fill":
		fill(args[0], number(args[1])<<20)
		fmt.Println("filled")
	case "serve":
		serve()
	case "ask":
		go ask(args)
	case "eat":
		var all [][]byte
		for {
			b := make([]byte, 16<<20)
			for i := range b {
				b[i] = byte(i)
			}
			all = append(all, b)
		}
	case "parent": // of a child that takes all memory
		fmt.Println("child:", exec.Command(os.Args[0], "eat").Run())
		return
	case "spin":
		go func() {
			for n := uint64(1); n != 0; n += 2 {
			}
		}()
	case "gpus":
		gpus(args)
	case "look":
		look(args)
	case "leave":
		leave(args[0])
	case "can":
		can()
	default:
		fmt.Fprintln(os.Stderr, "no such program:", name)
		os.Exit(99)
	}
	<-stop
}

// look prints which of paths are there, and which processes.
func look(paths []string) {
	for _, path := range paths {
		_, err := os.Stat(path)
		fmt.Println(path, err == nil)
	}
	entries, _ := filepath.Glob("/proc/[0-9]*")
	fmt.Println("processes", len(entries))
}

// leave starts a process that does everything to stay.
func leave(mark string) {
	c := exec.Command("/proc/self/exe", "stubborn", mark)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		panic(err)
	}
	fmt.Println("left")
}

// can prints the rights of this process, in five lines.
func can() {
	users, _ := os.ReadFile("/proc/self/uid_map")
	fmt.Println("users:", strings.Join(strings.Fields(string(users)), " "))
	fmt.Println("user:", os.Geteuid())
	data, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(data)) {
		if name, _, _ := strings.Cut(line, ":"); name == "CapEff" || name == "NoNewPrivs" || name == "Seccomp" {
			fmt.Print(line)
		}
	}
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// fill makes a file of so many bytes, without writing them where the file system can: a busy disk takes
// minutes for a gigabyte.
func fill(path string, size int) {
	f, err := os.Create(path)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if syscall.Fallocate(int(f.Fd()), 0, 0, int64(size)) != nil {
		write(path, strings.Repeat("x", size))
	}
}

func write(path, text string) {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		panic(err)
	}
}

func tell(args []string) {
	for _, a := range args {
		fmt.Printf("arg %q\n", a)
	}
	env := os.Environ()
	slices.Sort(env)
	for _, e := range env {
		if k, v, _ := strings.Cut(e, "="); strings.HasPrefix(k, "TELL_") {
			fmt.Printf("env %s=%q\n", k, v)
		}
	}
	fmt.Println("told")
}

// gpus tells of the nodes in /dev that are named like those of GPUs, and of what is in files.
func gpus(files []string) {
	nodes, _ := filepath.Glob("/dev/nvidia*")
	for _, path := range nodes {
		var s syscall.Stat_t
		if err := syscall.Stat(path, &s); err != nil {
			panic(err)
		}
		fmt.Printf("%s is %d:%d\n", path, s.Rdev>>8, s.Rdev&0xff)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			panic(err)
		}
		f.Close()
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		fmt.Printf("%s is %q %v\n", path, data, err)
	}
	fmt.Println("TELL_GPU is", os.Getenv("TELL_GPU"))
}

func count(what, dir string) {
	path := filepath.Join(dir, "count")
	data, _ := os.ReadFile(path)
	n, _ := strconv.Atoi(string(data))
	write(path, strconv.Itoa(n+1))
	fmt.Println(what, n+1)
}

func serve() {
	for _, e := range os.Environ() {
		k, public, _ := strings.Cut(e, "=")
		private, ok := strings.CutPrefix(k, "RUNPOD_TCP_PORT_")
		if !ok {
			continue
		}
		inside := private
		if number(private) >= 70000 { // it asks for one that is the same inside
			inside = public
		}
		l, err := net.Listen("tcp", ":"+inside)
		if err != nil {
			panic(err)
		}
		go func() {
			for {
				if c, err := l.Accept(); err == nil {
					fmt.Fprintf(c, "port %s\n", private)
					c.Close()
				}
			}
		}()
	}
}

// ask tries every address until it answers, and says so. A name that does not exist may
// take its time: an attempt does not.
func ask(addresses []string) {
	reached := map[string]bool{}
	for round := 1; ; round++ {
		for _, a := range addresses {
			if reached[a] {
				continue
			}
			c, err := net.DialTimeout("tcp", a, time.Second)
			if err != nil {
				continue
			}
			line, err := bufio.NewReader(c).ReadString('\n')
			if c.Close(); err == nil {
				reached[a] = true
				fmt.Print("reached ", a, " ", line)
			}
		}
		if round == 3 {
			fmt.Println("tried")
		}
		time.Sleep(100 * time.Millisecond)
	}
}

//go:build unix

// Package insideprogram is the program that podstest.Programs.Inside names, for tests of runtimes.
package insideprogram

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Run runs a command, and returns its exit code. self is the argv that leads here.
func Run(self, args []string) int {
	switch args[0] {
	case "tell":
		return tell(args[1:])
	case "copy":
		_, _ = io.Copy(os.Stdout, os.Stdin) // the test sees what is missing
	case "window":
		window()
	case "family":
		child := exec.Command(self[0], slices.Concat(self[1:], []string{"wait"}, args[1:])...)
		child.Stdout = os.Stdout
		if err := child.Run(); err != nil {
			return 1
		}
	case "wait":
		fmt.Println("ready")
		<-time.After(time.Hour)
	case "alive":
		fmt.Println(alive(args[1]))
	case "flood":
		for block := bytes.Repeat([]byte("flood\n"), 1000); ; {
			if _, err := os.Stdout.Write(block); err != nil {
				return 1
			}
		}
	case "exit":
		code, _ := strconv.Atoi(args[1])
		return code
	}
	return 0
}

func tell(args []string) int {
	for _, a := range args {
		fmt.Printf("arg %q\n", a)
	}
	env := os.Environ()
	slices.Sort(env)
	for _, v := range env {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "TELL_") {
			fmt.Printf("env %s=%q\n", name, value)
		}
	}
	dir, _ := os.Getwd()
	fmt.Printf("dir %q\n", dir)
	fmt.Fprintln(os.Stderr, "on stderr")
	return 7
}

// window prints the size of its terminal, and each new one, until a line ends it.
func window() {
	changed := make(chan os.Signal, 16)
	signal.Notify(changed, syscall.SIGWINCH)
	show := func() {
		if size, err := unix.IoctlGetWinsize(1, unix.TIOCGWINSZ); err == nil {
			fmt.Printf("%dx%d\n", size.Col, size.Row)
		} else {
			fmt.Println("no terminal")
		}
	}
	show()
	go func() {
		for range changed {
			show()
		}
	}()
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // also its end
}

// alive counts the other processes with a word in their args.
func alive(word string) int {
	entries, _ := os.ReadDir("/proc")
	n := 0
	for _, e := range entries {
		line, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err == nil && e.Name() != strconv.Itoa(os.Getpid()) && bytes.Contains(line, []byte(word)) && bytes.Contains(line, []byte("wait")) {
			n++
		}
	}
	return n
}

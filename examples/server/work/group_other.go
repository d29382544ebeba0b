//go:build !unix

package work

import "os/exec"

// ownGroup does nothing: the console sends its signal to all processes.
func ownGroup(*exec.Cmd) {}

// endGroup does nothing.
func endGroup(*exec.Cmd) {}

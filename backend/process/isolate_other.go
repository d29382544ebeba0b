//go:build !linux

package process

import (
	"errors"
	"io/fs"
	"os"
)

const canIsolate = false

const selfPath = ""

// LaunchPod works on Linux only.
func LaunchPod() error { return errors.New("process: pods are launched on Linux only") }

type cgroups struct{}

func openCgroups(*Isolation, string, lacks) cgroups { return cgroups{} }

func (cgroups) make(string, int, int64) ([]string, error) { return nil, nil }

func (cgroups) leftovers([]string) []string { return nil }

func (cgroups) limitPIDs() bool { return false }

func killCgroups([]string) int { return 0 }

func removeCgroups([]string) error { return nil }

func runningUsers() (map[uint32]bool, error) { return nil, errors.ErrUnsupported }

func ownerOf(fs.FileInfo) uint32 { return uint32(max(os.Getuid(), 0)) }

func linksOf(fs.FileInfo) uint64 { return 1 }

func inode(fs.FileInfo) (dev, ino uint64) { return 0, 0 }

func allocated(info fs.FileInfo) int64 { return info.Size() }

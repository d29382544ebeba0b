//go:build !linux

package docker

// freePercent is not known: an engine has its disk in a virtual machine here.
func freePercent(string) (float64, error) { return 100, nil }

package podhost

import (
	"os"
	"strconv"
	"strings"
)

// MachineMemory returns the memory of this machine in bytes, or 0 if it cannot be read.
func MachineMemory() int64 {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	return memTotal(string(data))
}

func memTotal(meminfo string) int64 {
	_, rest, _ := strings.Cut(meminfo, "MemTotal:")
	line, _, _ := strings.Cut(rest, "\n")
	kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(line, "kB")), 10, 53)
	if err != nil {
		return 0
	}
	return kb << 10
}

package podhost

import (
	"runtime"
	"testing"
)

func TestMachineMemoryIsThatOfTheKernel(t *testing.T) {
	for meminfo, want := range map[string]int64{
		"MemTotal:       24689652 kB\nMemFree: 1 kB\n": 24689652 << 10,
		"MemTotal: 1 kB":      1 << 10,
		"MemFree: 7 kB\n":     0,
		"MemTotal: much kB\n": 0,
		"":                    0,
	} {
		if got := memTotal(meminfo); got != want {
			t.Errorf("memTotal(%q) = %d, want %d", meminfo, got, want)
		}
	}
	if runtime.GOOS == "linux" && MachineMemory() < 1<<20 {
		t.Errorf("this machine has %d bytes of memory", MachineMemory())
	}
}

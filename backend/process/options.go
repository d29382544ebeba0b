package process

import (
	"log/slog"
	"runtime"
	"time"
)

// An Image is what a pod with this image name runs.
type Image struct {
	// Command is the program and its first arguments; Spec.Args follow. Without a
	// Command, Spec.Args is the command, so any that the server's user may run.
	Command []string
	// Dir is the working directory, absolute. Default: the pod's disk.
	Dir string
	// Env is set for all pods of this image; Spec.Env goes before it.
	Env map[string]string
}

// Options of a Runtime. The zero value of a field is its default.
type Options struct {
	// Images are all there are. They are not to be changed afterwards.
	Images map[string]Image
	// Host is the IP address that ports are published on. Default 127.0.0.1.
	Host string
	// Settle is how long a pod without ports has to run to be healthy. Default 100 ms.
	Settle time.Duration
	// Ready is when a pod that listens on none of its ports counts as healthy all the
	// same. Default 10 s.
	Ready time.Duration
	// Grace is how long a pod that is replaced, or ended by Close, may take to end by
	// itself. Default 1 s.
	Grace time.Duration
	// LogSize is how many bytes of output are kept of one pod, the latest, each line
	// counted with about 50 bytes more. Default 10 MiB, at least 256 KiB.
	LogSize int64
	// Cores and Memory (bytes) are what percentages refer to for a pod whose Spec sets no
	// limit. Default: those of the machine.
	Cores  int
	Memory int64
	// GPUs is asked before each start of a pod with devices whether they are there: with an
	// error the pod fails, for that reason. It is set where the GPUs of this host go to one
	// pod at a time, so that a pod without devices is shown none. Default: devices are taken
	// for there, and pods without are shown what the host has.
	GPUs func(devices []string) error
	// Logger hears of what no State can tell: a directory that cannot be written, and the
	// paths of this host in what keeps a pod from starting. Default: slog.Default.
	Logger *slog.Logger
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.Host == "" {
		d.Host = "127.0.0.1"
	}
	if d.Settle <= 0 {
		d.Settle = 100 * time.Millisecond
	}
	if d.Ready <= 0 {
		d.Ready = 10 * time.Second
	}
	if d.Grace <= 0 {
		d.Grace = time.Second
	}
	if d.LogSize <= 0 {
		d.LogSize = 10 << 20
	}
	d.LogSize = max(d.LogSize, 256<<10)
	if d.Cores <= 0 {
		d.Cores = runtime.NumCPU()
	}
	if d.Memory <= 0 {
		d.Memory = machineMemory()
	}
	if d.Logger == nil {
		d.Logger = slog.Default()
	}
	return d
}

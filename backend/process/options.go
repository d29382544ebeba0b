package process

import (
	"log/slog"
	"runtime"
	"time"

	"github.com/podyard/podyard/internal/podhost"
)

// An Image is what a pod with this image name runs.
type Image struct {
	// Command is the program and its first arguments; Spec.Args follow. Without a
	// Command, Spec.Args is the command, so any that the server's user may run.
	Command []string
	// Self says that the program is this very one: of Command, the first word is only what it
	// is told that it is called. It runs also where its file is gone, or lies in a directory
	// that the pod's user cannot reach.
	Self bool
	// Dir is the working directory, absolute. Default: the pod's disk.
	Dir string
	// Env is set for all pods of this image; Spec.Env goes before it.
	Env map[string]string
	// AllowEnv names the variables that users may set, which replace those of Env. One that
	// ends in '*' is for all that begin so; a variable that steers programs (LD_PRELOAD,
	// PYTHONPATH, ...) is never among these, and an error of Open where it is named itself.
	// Default: none.
	AllowEnv []string
	// AllowArgs says that users may set args. Default: they may not.
	AllowArgs bool
	// User is the user of the host, by name or number, that pods of this image run as,
	// where the server is root and Isolation is set. It is then of one owner only: the first
	// one with a pod of such an image. Default: that of the owner, see Isolation.UIDs.
	User string
}

// Options of a Runtime. The zero value of a field is its default.
type Options struct {
	// Images are all there are: see Runtime.Reconfigure.
	Images map[string]Image
	// Host is the IP address that ports are published on. Default 127.0.0.1.
	Host string
	// MinReadyTime is how long a pod without ports has to run to be healthy. Default 100 ms.
	MinReadyTime time.Duration
	// ReadyTimeout is when a pod that listens on none of its ports counts as healthy all the
	// same. Default 10 s.
	ReadyTimeout time.Duration
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
	// Trusted says which owners may set any args and variables for any image: operators. It
	// must not block. Default: none but the empty one, which is the program itself.
	Trusted func(owner string) bool
	// Isolation keeps pods from the server, the host and each other. Default: nothing does.
	Isolation *Isolation
	// Logger hears of what no State can tell: a directory that cannot be written, and the
	// paths of this host in what keeps a pod from starting. Default: nothing is logged.
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
	if d.MinReadyTime <= 0 {
		d.MinReadyTime = 100 * time.Millisecond
	}
	if d.ReadyTimeout <= 0 {
		d.ReadyTimeout = 10 * time.Second
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
		d.Memory = podhost.MachineMemory()
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return d
}

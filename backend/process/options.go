package process

import (
	"log/slog"
	"time"
)

// An Image says what a pod with this image name runs.
type Image struct {
	// Command is the program and its first arguments; Spec.Args follow. Without a Command,
	// Spec.Entrypoint and Spec.Args are the command: any that the pod's user may run.
	Command []string
	// Self means that the program is the running one. The first word of Command is only its
	// name. It runs also when its file is gone, or in a directory that the pod's user cannot
	// reach.
	Self bool
	// Dir is the working directory, absolute. Default: the pod's disk.
	Dir string
	// Env is set for all pods of this image. Spec.Env overrides it.
	Env map[string]string
	// AllowEnv names the variables that users may set, which override those of Env. A name that
	// ends in '*' is a prefix. Variables that decide what programs load (LD_PRELOAD,
	// PYTHONPATH, ...) are never covered by a prefix, and to name one is an error of Open.
	// Default: none.
	AllowEnv []string
	// AllowArgs says that users may set args. Default: they may not.
	AllowArgs bool
	// User is the user of the host, by name or number, that pods of this image run as, where
	// the server is root. Default: that of Isolation.
	User string
	// Users may run it, besides the owners of Options.Trusted; "*" is everybody. For others the
	// image does not exist. Default: nobody else.
	Users []string
}

// Options configures a Runtime. The zero value of a field is its default.
type Options struct {
	// Images are all images, by name; Runtime.Reconfigure replaces them.
	Images map[string]Image
	// Host is the IP address that ports are published on. Default 127.0.0.1.
	Host string
	// ReadyTimeout is the time after which a pod that listens on none of its ports counts as
	// healthy. Default 10 s.
	ReadyTimeout time.Duration
	// Grace is how long a pod that is replaced or closed may take to end by itself. Default 1
	// s.
	Grace time.Duration
	// LogSize is how many bytes of the latest output are kept for a pod; a line counts about 50
	// bytes more than its text. Default 10 MiB, at least 256 KiB.
	LogSize int64
	// GPUs checks before each start of a pod with devices that they are there. Its error fails
	// the pod. Set it where the GPUs of this host go to one pod at a time: pods without devices
	// then see none. Default: devices are not checked, and pods without devices see all.
	GPUs func(devices []string) error
	// Trusted reports whether an owner may use any image, with any args and variables, as
	// operators may. It must not block. Default: only the empty owner, which is the program
	// itself.
	Trusted func(owner string) bool
	// Isolation protects the server, the host and other pods from a pod, and lets pods outlive a
	// killed server. Default: no isolation, and pods end with the server.
	Isolation *Isolation
	// Logger gets what users must not see or states cannot say: directories that cannot be
	// written, and failures of starts with the paths of this host. Default: nothing is logged.
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
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return d
}

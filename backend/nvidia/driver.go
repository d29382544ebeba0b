package nvidia

import (
	"errors"
	"fmt"
	"sync"

	"github.com/podyard/podyard/pods"
)

var (
	// ErrMissing is what Open returns where there is neither NVML nor nvidia-smi: on a
	// machine without a driver.
	ErrMissing = errors.New("nvidia: there is no driver library (NVML)")
	// ErrClosed is what calls return after Close.
	ErrClosed = errors.New("nvidia: driver is closed")
)

// Options of a Driver. The zero value of a field is its default.
type Options struct {
	// Library is the file of NVML. Default: libnvidia-ml.so.1, where the dynamic linker
	// finds it. Builds that cannot load it do not look for it.
	Library string
}

// A Device is one GPU.
type Device struct {
	UUID   string // "GPU-8f6b…"
	Name   string // "NVIDIA GeForce RTX 4090"
	Memory uint64 // bytes
	MIG    bool   // it is partitioned, and not to be had as a whole
}

// A Version is what a driver says of itself.
type Version struct {
	Driver string // "570.86.15"
	CUDA   string // the newest that it runs, as major.minor: "12.8"
}

// A Driver is the NVIDIA driver of this machine. It is safe for concurrent use.
type Driver struct {
	version Version

	// mu is held for reading over calls of the library, of which Close waits for the end:
	// there is no code to run after it.
	mu  sync.RWMutex
	lib library // nil once closed
}

// A library is what a Driver needs of NVML, or of nvidia-smi. Its errors do not name this package.
type library interface {
	version() (Version, error)
	devices() ([]Device, error)
	device(uuid string) (Device, error)
	load(uuid string) (pods.GPUSample, error)
	close() error
}

// Open loads NVML, or where there is none looks up nvidia-smi, and has it find the driver.
// The error is ErrMissing where there is neither; any other says why the one there is cannot
// be used. o may be nil.
func Open(o *Options) (*Driver, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	lib, err := openLibrary(opts.Library)
	if errors.Is(err, ErrMissing) {
		lib, err = openSMI(err)
	}
	if errors.Is(err, ErrMissing) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("nvidia: open: %w", err)
	}
	v, err := lib.version()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("nvidia: open: %w", err), lib.close())
	}
	return &Driver{version: v, lib: lib}, nil
}

// Version is the driver's, as of Open.
func (d *Driver) Version() Version { return d.version }

// Devices are the GPUs of this machine now, in the driver's order. With an error, which
// says what of which GPU could not be read, they are those that could be.
func (d *Driver) Devices() ([]Device, error) {
	var list []Device
	err := d.call(func(lib library) (err error) {
		list, err = lib.devices()
		return err
	})
	if err != nil {
		return list, fmt.Errorf("nvidia: list devices: %w", err)
	}
	return list, nil
}

// Check is nil when each of these devices is there now and is whole. The error names the
// first that is not.
func (d *Driver) Check(uuids []string) error {
	for _, id := range uuids {
		var dev Device
		err := d.call(func(lib library) (err error) {
			dev, err = lib.device(id)
			return err
		})
		if err != nil {
			return fmt.Errorf("nvidia: check %q: %w", id, err)
		}
		if dev.MIG {
			return fmt.Errorf("nvidia: check %q: it is partitioned (MIG)", id)
		}
	}
	return nil
}

// Load is how busy a device is.
func (d *Driver) Load(uuid string) (pods.GPUSample, error) {
	var s pods.GPUSample
	err := d.call(func(lib library) (err error) {
		s, err = lib.load(uuid)
		return err
	})
	if err != nil {
		return pods.GPUSample{}, fmt.Errorf("nvidia: measure %q: %w", uuid, err)
	}
	return s, nil
}

// Close is the end of what the driver is used for. A second one does nothing.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lib == nil {
		return nil
	}
	lib := d.lib
	d.lib = nil
	if err := lib.close(); err != nil {
		return fmt.Errorf("nvidia: close: %w", err)
	}
	return nil
}

func (d *Driver) call(f func(library) error) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.lib == nil {
		return ErrClosed
	}
	return f(d.lib)
}

// percent is how much of the whole a part is, in percent.
func percent(part, whole uint64) int {
	if whole == 0 {
		return 0
	}
	return min(int(100*float64(part)/float64(whole)+0.5), 100)
}

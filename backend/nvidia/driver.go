package nvidia

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/podyard/podyard/pods"
)

var (
	// ErrMissing is the error of Open on a machine without a driver: there is neither NVML
	// nor nvidia-smi.
	ErrMissing = errors.New("nvidia: there is no driver library (NVML)")
	// ErrClosed is the error of calls after Close.
	ErrClosed = errors.New("nvidia: driver is closed")
)

// Options configures a Driver. A zero field has its default.
type Options struct {
	// Library is the file of NVML. Default: libnvidia-ml.so.1, as the dynamic linker finds
	// it. Builds that cannot load a library ignore it.
	Library string
}

// A Device is one GPU, or a part of a partitioned one (a MIG device).
type Device struct {
	UUID   string // "GPU-8f6b…"; "MIG-3c1e…" for a part
	Name   string // "NVIDIA GeForce RTX 4090"; "NVIDIA A100-SXM4-80GB MIG 2g.20gb" for a part
	Memory uint64 // bytes
	MIG    bool   // it is partitioned, so that only its parts can be given to a pod
	Parent string // the UUID of the GPU that this is a part of; "" for a GPU
}

// isPart tells the UUIDs of parts from those of GPUs. The drivers have two forms for parts,
// "MIG-3c1e…" and, before version 470, "MIG-GPU-8f6b…/1/0".
func isPart(uuid string) bool { return strings.HasPrefix(uuid, "MIG-") }

// A Version is the version that a driver reports.
type Version struct {
	Driver string // "570.86.15"
	CUDA   string // the newest that it supports, as major.minor: "12.8"
}

// A Driver is the NVIDIA driver of this machine. It is safe for concurrent use.
type Driver struct {
	version Version

	// mu is held for reading during calls of the library. Close waits for their end,
	// because the library's code must not run after it is unloaded.
	mu  sync.RWMutex
	lib library // nil once closed
}

// A library is NVML or nvidia-smi. Its errors do not name this package.
type library interface {
	version() (Version, error)
	devices() ([]Device, error)
	device(uuid string) (Device, error)
	load(uuid string) (pods.GPUSample, error)
	close() error
}

// Open loads NVML, or finds nvidia-smi if there is no NVML, and reads the driver's version.
// The error is ErrMissing if there is neither. Any other error says why the one that is
// there cannot be used. o may be nil.
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

// Version returns the driver's version, as read by Open.
func (d *Driver) Version() Version { return d.version }

// Devices returns the current GPUs of this machine, in the driver's order. The parts of a
// partitioned GPU follow it. If some GPU cannot be read, Devices returns the others, and an
// error that says what could not be read.
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

// Check returns nil if each of these devices is there now and can be given to a pod: a GPU
// that is not partitioned, or a part. The error names the first one that is not.
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

// Load returns the current load of a device.
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

// Close waits for running calls and closes the library. A second Close does nothing.
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

// percent returns part as a percentage of whole, or 0 if whole is 0.
func percent(part, whole uint64) int {
	if whole == 0 {
		return 0
	}
	return min(int(100*float64(part)/float64(whole)+0.5), 100)
}

//go:build linux && cgo

package nvidia

import (
	"errors"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/podyard/podyard/pods"
)

const defaultLibrary = "libnvidia-ml.so.1"

// needed are the functions that this package calls. They are looked up first, because a
// call of a missing function ends the process.
var needed = []string{
	"nvmlInit_v2", "nvmlShutdown", "nvmlErrorString",
	"nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion_v2",
	"nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByUUID",
	"nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUtilizationRates",
}

// neededForMIG are missing in drivers from before partitioned GPUs.
var neededForMIG = []string{"nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex"}

type nvmlLibrary struct {
	nvml nvml.Interface
	mig  bool // the driver knows partitioned GPUs
}

func openLibrary(path string) (library, error) {
	if path == "" {
		path = defaultLibrary
	}
	mig, err := probe(path)
	if err != nil {
		return nil, err
	}
	n := nvml.New(nvml.WithLibraryPath(path))
	if ret := n.Init(); ret != nvml.SUCCESS {
		return nil, refused("initialise", ret)
	}
	return &nvmlLibrary{n, mig}, nil
}

// probe checks that the library at path can be used.
func probe(path string) (mig bool, err error) {
	l := dl.New(path, dl.RTLD_LAZY|dl.RTLD_LOCAL)
	if err := l.Open(); err != nil {
		return false, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	for _, name := range needed {
		if err := l.Lookup(name); err != nil {
			return false, errors.Join(fmt.Errorf("%s is no NVML, or too old a one: it has no %s", path, name), l.Close())
		}
	}
	mig = !slices.ContainsFunc(neededForMIG, func(name string) bool { return l.Lookup(name) != nil })
	return mig, l.Close()
}

// refused returns an error with the library's text for ret.
func refused(what string, ret nvml.Return) error {
	return fmt.Errorf("%s: the driver says: %s", what, ret.String())
}

func (l *nvmlLibrary) version() (v Version, err error) {
	var ret nvml.Return
	if v.Driver, ret = l.nvml.SystemGetDriverVersion(); ret != nvml.SUCCESS {
		return v, refused("version", ret)
	}
	n, ret := l.nvml.SystemGetCudaDriverVersion_v2()
	if ret != nvml.SUCCESS {
		return v, refused("CUDA version", ret)
	}
	v.CUDA = fmt.Sprintf("%d.%d", n/1000, n%1000/10)
	return v, nil
}

func (l *nvmlLibrary) devices() ([]Device, error) {
	n, ret := l.nvml.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, refused("count", ret)
	}
	var list []Device
	var errs []error
	for i := range n {
		h, ret := l.nvml.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			errs = append(errs, refused(fmt.Sprintf("GPU %d", i), ret))
			continue
		}
		d, err := l.read(h)
		if err != nil {
			errs = append(errs, fmt.Errorf("GPU %d: %w", i, err))
			continue
		}
		list = append(list, d)
		if !d.MIG {
			continue
		}
		parts, err := l.parts(h, d)
		if err != nil {
			errs = append(errs, fmt.Errorf("GPU %d: %w", i, err))
		}
		list = append(list, parts...)
	}
	return list, errors.Join(errs...)
}

// parts returns the MIG devices of a partitioned GPU. Their indexes may have gaps.
func (l *nvmlLibrary) parts(gpu nvml.Device, of Device) (list []Device, err error) {
	n, ret := gpu.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return nil, refused("count its parts", ret)
	}
	var errs []error
	for i := range n {
		h, ret := gpu.GetMigDeviceHandleByIndex(i)
		if ret == nvml.ERROR_NOT_FOUND {
			continue
		}
		if ret != nvml.SUCCESS {
			errs = append(errs, refused(fmt.Sprintf("part %d", i), ret))
			continue
		}
		d, err := readHandle(h)
		if err != nil {
			errs = append(errs, fmt.Errorf("part %d: %w", i, err))
			continue
		}
		d.Parent = of.UUID
		list = append(list, d)
	}
	return list, errors.Join(errs...)
}

func (l *nvmlLibrary) device(uuid string) (Device, error) {
	h, ret := l.nvml.DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		return Device{}, refused("find it", ret)
	}
	if isPart(uuid) {
		return readHandle(h)
	}
	return l.read(h)
}

func (l *nvmlLibrary) read(h nvml.Device) (Device, error) {
	d, err := readHandle(h)
	if err != nil || !l.mig {
		return d, err
	}
	mode, _, ret := h.GetMigMode()
	if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_SUPPORTED {
		return d, refused("MIG mode", ret)
	}
	d.MIG = ret == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE
	return d, nil
}

// readHandle reads what GPUs and their parts have in common.
func readHandle(h nvml.Device) (d Device, err error) {
	var ret nvml.Return
	if d.UUID, ret = h.GetUUID(); ret != nvml.SUCCESS {
		return d, refused("UUID", ret)
	}
	if d.Name, ret = h.GetName(); ret != nvml.SUCCESS {
		return d, refused("name", ret)
	}
	m, ret := h.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return d, refused("memory", ret)
	}
	d.Memory = m.Total
	return d, nil
}

func (l *nvmlLibrary) load(uuid string) (s pods.GPUSample, err error) {
	h, ret := l.nvml.DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		return s, refused("find it", ret)
	}
	if !isPart(uuid) { // the driver measures whole GPUs only
		u, ret := h.GetUtilizationRates()
		switch ret {
		case nvml.SUCCESS:
			s.Util = min(int(u.Gpu), 100)
		case nvml.ERROR_NOT_SUPPORTED: // some GPUs have no such counter
		default:
			return s, refused("utilisation", ret)
		}
	}
	m, ret := h.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return s, refused("memory", ret)
	}
	s.MemoryUtil = percent(m.Used, m.Total)
	return s, nil
}

func (l *nvmlLibrary) close() error {
	if ret := l.nvml.Shutdown(); ret != nvml.SUCCESS {
		return refused("shut down", ret)
	}
	return nil
}

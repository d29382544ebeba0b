package nvidia

import (
	"encoding/csv"
	"encoding/xml"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/podyard/podyard/pods"
)

// smiName is NVIDIA's program, for machines or builds without the library.
const smiName = "nvidia-smi"

// mebibyte is the program's unit of memory.
const mebibyte = 1 << 20

// A smi runs that program, once for each request. The time grows with the number of GPUs.
type smi struct{ path string }

// openSMI finds the program. why is the reason why the library is not used.
func openSMI(why error) (library, error) {
	path, err := exec.LookPath(smiName)
	if err != nil {
		return nil, fmt.Errorf("%w; and no %s: %w", why, smiName, err)
	}
	return smi{path}, nil
}

// run returns the program's output, where it also writes its errors.
func (t smi) run(what string, args ...string) (string, error) {
	out, err := exec.Command(t.path, args...).Output() //nolint:noctx // no more to be broken off than a call of the library
	if err == nil {
		return string(out), nil
	}
	words, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || words == "" {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	return "", fmt.Errorf("%s: the driver says: %s", what, strings.TrimSuffix(words, "."))
}

// query returns a row of fields for each GPU, or for the one with this UUID.
func (t smi) query(what, uuid string, fields ...string) ([][]string, error) {
	args := []string{"--query-gpu=" + strings.Join(fields, ","), "--format=csv,noheader,nounits"}
	if uuid != "" {
		args = append(args, "--id="+uuid)
	}
	out, err := t.run(what, args...)
	if err != nil {
		return nil, err
	}
	r := csv.NewReader(strings.NewReader(out))
	r.TrimLeadingSpace, r.FieldsPerRecord = true, len(fields)
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %s is not understood: %w", what, smiName, err)
	}
	return rows, nil
}

// version reads the start of a report, because no query has the CUDA version.
func (t smi) version() (v Version, err error) {
	out, err := t.run("version", "-q", "-d", "MEMORY")
	if err != nil {
		return v, err
	}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(name) {
		case "Driver Version":
			v.Driver = strings.TrimSpace(value)
		case "CUDA Version":
			v.CUDA = strings.TrimSpace(value)
		}
	}
	major, minor, _ := strings.Cut(v.CUDA, ".")
	if _, err := strconv.ParseUint(major+minor, 10, 32); err != nil {
		return v, fmt.Errorf("CUDA version: the driver says: %q", v.CUDA)
	}
	return v, nil
}

var deviceFields = []string{"uuid", "name", "memory.total", "mig.mode.current"}

func (t smi) devices() (list []Device, err error) {
	rows, err := t.query("list", "", deviceFields...)
	if err != nil {
		return nil, err
	}
	var errs []error
	for i, row := range rows {
		d, err := readDevice(row)
		if err != nil {
			errs = append(errs, fmt.Errorf("GPU %d: %w", i, err))
			continue
		}
		list = append(list, d)
		if !d.MIG {
			continue
		}
		parts, err := t.parts(d)
		if err != nil {
			errs = append(errs, fmt.Errorf("GPU %d: %w", i, err))
		}
		for _, p := range parts {
			list = append(list, p.Device)
		}
	}
	return list, errors.Join(errs...)
}

// A smiPart is a part of a partitioned GPU.
type smiPart struct {
	Device

	used uint64 // bytes
}

// partLine is a part in the program's short list: its size, index and UUID. The line of its
// GPU begins with "GPU".
var partLine = regexp.MustCompile(`^\s+(MIG \S+)\s+Device\s+(\d+): \(UUID: (MIG-[^)]+)\)`)

// parts returns the parts of a partitioned GPU. Their sizes and UUIDs are in the program's
// short list, their memory is in its report, and both have their index.
func (t smi) parts(gpu Device) ([]smiPart, error) {
	out, err := t.run("list its parts", "-L") // of all GPUs: it takes no --id with it
	if err != nil {
		return nil, err
	}
	memory, err := t.partMemory(gpu.UUID)
	if err != nil {
		return nil, err
	}
	var list []smiPart
	within := false
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "GPU ") {
			within = strings.Contains(line, "(UUID: "+gpu.UUID+")")
		}
		if !within {
			continue
		}
		m := partLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		of, ok := memory[m[2]]
		if !ok {
			return list, fmt.Errorf("part %s: %s does not report its memory", m[3], smiName)
		}
		list = append(list, smiPart{
			Device{UUID: m[3], Name: gpu.Name + " " + m[1], Memory: of.total, Parent: gpu.UUID}, of.used,
		})
	}
	return list, nil
}

type usage struct{ total, used uint64 } // bytes

// partMemory returns the memory of the parts of a GPU, by their index.
func (t smi) partMemory(uuid string) (map[string]usage, error) {
	out, err := t.run("measure its parts", "-q", "-x", "--id="+uuid)
	if err != nil {
		return nil, err
	}
	var report struct {
		Parts []struct {
			Index string `xml:"index"`
			Total string `xml:"fb_memory_usage>total"`
			Used  string `xml:"fb_memory_usage>used"`
		} `xml:"gpu>mig_devices>mig_device"`
	}
	if err := xml.Unmarshal([]byte(out), &report); err != nil {
		return nil, fmt.Errorf("measure its parts: %s is not understood: %w", smiName, err)
	}
	found := make(map[string]usage)
	for _, p := range report.Parts {
		total, err := amount("memory", strings.TrimSuffix(p.Total, " MiB"))
		if err != nil {
			return nil, fmt.Errorf("part %s: %w", p.Index, err)
		}
		used, err := amount("memory", strings.TrimSuffix(p.Used, " MiB"))
		if err != nil {
			return nil, fmt.Errorf("part %s: %w", p.Index, err)
		}
		found[p.Index] = usage{total * mebibyte, used * mebibyte}
	}
	return found, nil
}

// part finds a part among those of all partitioned GPUs.
func (t smi) part(uuid string) (smiPart, error) {
	gpus, err := t.query("find it", "", deviceFields...)
	if err != nil {
		return smiPart{}, err
	}
	for _, row := range gpus {
		d, err := readDevice(row)
		if err != nil || !d.MIG {
			continue // another GPU's fault
		}
		parts, err := t.parts(d)
		if i := slices.IndexFunc(parts, func(p smiPart) bool { return p.UUID == uuid }); i >= 0 {
			return parts[i], nil
		}
		if err != nil {
			return smiPart{}, err
		}
	}
	return smiPart{}, fmt.Errorf("find it: %s lists no such part", smiName)
}

func (t smi) device(uuid string) (Device, error) {
	if isPart(uuid) {
		p, err := t.part(uuid)
		return p.Device, err
	}
	row, err := t.queryOne(uuid, deviceFields...)
	if err != nil {
		return Device{}, err
	}
	return readDevice(row)
}

// queryOne returns the row of one GPU.
func (t smi) queryOne(uuid string, fields ...string) ([]string, error) {
	rows, err := t.query("find it", uuid, fields...)
	if err != nil {
		return nil, err
	}
	if len(rows) != 1 {
		return nil, fmt.Errorf("find it: %s lists %d GPUs", smiName, len(rows))
	}
	return rows[0], nil
}

// readDevice reads a row of deviceFields.
func readDevice(row []string) (Device, error) {
	memory, err := amount("memory", row[2])
	if err != nil {
		return Device{}, err
	}
	return Device{UUID: row[0], Name: row[1], Memory: memory * mebibyte, MIG: row[3] == "Enabled"}, nil
}

// amount parses a number. If there is none, text is the driver's explanation in brackets.
func amount(what, text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: the driver says: %s", what, strings.Trim(text, "[]"))
	}
	return n, nil
}

func (t smi) load(uuid string) (s pods.GPUSample, err error) {
	if isPart(uuid) {
		p, err := t.part(uuid)
		return pods.GPUSample{MemoryUtil: percent(p.used, p.Memory)}, err
	}
	row, err := t.queryOne(uuid, "utilization.gpu", "memory.used", "memory.total")
	if err != nil {
		return s, err
	}
	if util, err := amount("utilisation", row[0]); err == nil { // some GPUs have no such counter
		s.Util = min(int(util), 100)
	}
	used, err := amount("memory", row[1])
	if err != nil {
		return s, err
	}
	total, err := amount("memory", row[2])
	if err != nil {
		return s, err
	}
	s.MemoryUtil = percent(used, total)
	return s, nil
}

func (smi) close() error { return nil }

package nvidia

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os/exec"
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
	}
	return list, errors.Join(errs...)
}

func (t smi) device(uuid string) (Device, error) {
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

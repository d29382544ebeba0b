package endpoints

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// maxReleases is the number of releases of an endpoint that are kept.
const maxReleases = 50

// addFirstRelease adds the release with which e is created.
func (e *Endpoint) addFirstRelease(id, user string, now time.Time) {
	e.Version = 1
	e.Releases = []Release{{ID: id, Version: 1, User: user, Created: now}}
}

// addRelease adds a release to e if the worker settings of e differ from those of was. It
// returns an error only for a value that cannot be encoded as JSON.
func (e *Endpoint) addRelease(was *Endpoint, id, user string, now time.Time) error {
	diff, err := changes(was, e)
	if err != nil || len(diff) == 0 {
		return err
	}
	e.Version++
	e.Releases = append(e.Releases, Release{ID: id, Version: e.Version, User: user, Created: now, Diff: diff})
	if n := len(e.Releases); n > maxReleases {
		e.Releases = slices.Clone(e.Releases[n-maxReleases:])
	}
	return nil
}

// A setting is a worker setting with its name in the API.
type setting struct {
	field string
	value any // nil: absent
}

// workerSettings returns the settings of e that apply to new workers only.
func (e *Endpoint) workerSettings() []setting {
	c := e.Container
	s := []setting{
		{"image", c.Image}, {"args", c.Args}, {"disk", c.Disk}, {"ports", allOf(c.Ports)},
		{"env", c.Env}, {"registry", orNil(c.Registry)},
	}
	if c.Env == nil {
		s[4].value = map[string]string{}
	}
	g := e.GPU
	if g == nil {
		g = &GPU{}
	}
	s = append(s,
		setting{"gpu.pools", stringsOrNil(g.Pools)}, setting{"gpu.excludedTypes", stringsOrNil(g.ExcludedTypes)},
		setting{"gpu.count", g.Count}, setting{"gpu.allowedCudaVersions", allOf(g.AllowedCUDAVersions)},
		setting{"gpu.minCudaVersion", orNil(g.MinCUDAVersion)}, setting{"cpu", machines(e.CPU)},
		setting{"dataCenterIds", allOf(e.DataCenterIDs)}, setting{"networkVolumes", allOf(e.NetworkVolumes)},
	)
	fb := e.FlashBoot
	if fb == "" {
		fb = FlashBootOff
	}
	return append(s, setting{"flashboot", fb}, setting{"type", e.typeName()})
}

// A machine is a CPU as the API encodes it.
type machine struct {
	ID        string `json:"id"`
	VCPUCount int    `json:"vcpuCount"`
	Memory    int    `json:"memory"`
}

func machines(cpu []CPU) any {
	if len(cpu) == 0 {
		return nil
	}
	ms := make([]machine, 0, len(cpu))
	for _, m := range cpu {
		ms = append(ms, machine{m.ID, m.VCPU, m.Memory})
	}
	return ms
}

// changes returns the worker settings that differ between was and e.
func changes(was, e *Endpoint) ([]Change, error) {
	before, after := was.workerSettings(), e.workerSettings()
	var diff []Change
	for i := range after {
		old, err := rawJSON(before[i].value)
		if err != nil {
			return nil, fmt.Errorf("serverless: setting %s of %q: %w", after[i].field, e.ID, err)
		}
		now, err := rawJSON(after[i].value)
		if err != nil {
			return nil, fmt.Errorf("serverless: setting %s of %q: %w", after[i].field, e.ID, err)
		}
		if !bytes.Equal(old, now) {
			diff = append(diff, Change{Field: after[i].field, Old: old, New: now})
		}
	}
	return diff, nil
}

// rawJSON returns v as the API encodes it, and nil for nil.
func rawJSON(v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	return json.Marshal(v)
}

// allOf returns l for encoding; an absent list becomes an empty one.
func allOf(l []string) any {
	if l == nil {
		return []string{}
	}
	return l
}

func stringsOrNil(l []string) any {
	if len(l) == 0 {
		return nil
	}
	return l
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

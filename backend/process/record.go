package process

import (
	"encoding/json"
	"fmt"

	"github.com/podyard/podyard/backend/process/internal/supervise"
	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

// A record is what the next server must know about a pod. It has no environment, which may have
// secrets; the next Ensure has it again.
type record struct {
	Version int                 `json:"version"`
	State   pods.ContainerState `json:"state"`
	Disk    *uint64             `json:"disk"`   // the generation for which the disk was wiped
	Starts  uint64              `json:"starts"` // how often it was started
	// Starting is set from before a process is made until it runs, and Running until it has
	// ended.
	Starting bool           `json:"starting"`
	Running  bool           `json:"running"`
	VCPU     int            `json:"vcpu"`
	Memory   int            `json:"memory"`
	Cgroups  []string       `json:"cgroups,omitempty"` // of the last start
	Limits   []diskLimit    `json:"limits,omitempty"`
	Ports    []podhost.Port `json:"ports"`
	Boot     string         `json:"boot,omitempty"` // of the host, at its last start
	User     *uint32        `json:"user,omitempty"` // who owns all that the pod has

	// Of servers before supervisors: the first process.
	PID       int    `json:"pid,omitempty"`
	StartTime string `json:"born,omitempty"`
}

const recordVersion = 1

// readRecord reads no more than a record can have.
func readRecord(path string) (record, error) {
	var rec record
	data, err := supervise.ReadBounded(path)
	if err != nil {
		return rec, err
	}
	if err := json.Unmarshal(data, &rec); err != nil {
		return rec, err
	}
	if rec.Version != recordVersion {
		return rec, fmt.Errorf("version %d, want %d", rec.Version, recordVersion)
	}
	return rec, nil
}

// write replaces the file at path durably.
func (rec record) write(path string) error {
	rec.Version = recordVersion
	data, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return podhost.ReplaceFile(path, data, true)
}

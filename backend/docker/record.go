package docker

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/moby/api/types/container"

	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

// A record holds what the engine does not know about a pod. It has no environment and no
// credential: the next Ensure has them.
type record struct {
	Version int                 `json:"version"`
	State   pods.ContainerState `json:"state"`
	// Starting is set before the engine gets the request to start a container.
	// PreviousStart is the container's last start before that request. After a crash, they
	// show whether the start happened.
	Starting      bool   `json:"starting"`
	PreviousStart string `json:"before"`
	StartCanceled bool   `json:"void"`  // this run was stopped before it had a container
	StopRequested bool   `json:"asked"` // this run got a stop request
	Healthy       bool   `json:"healthy"`
	// Check is the image's health check if this package runs it instead of the engine.
	Check          *container.HealthConfig `json:"check,omitempty"`
	VCPU           int                     `json:"vcpu"`
	Memory         int                     `json:"memory"`
	RequestedPorts []pods.Port             `json:"wants"`
	Ports          []podhost.Port          `json:"ports"`
	Publication    podhost.Publication     `json:"publication,omitzero"`
	Host           string                  `json:"host,omitempty"`   // address of ports that are not local; empty: loopback, of older records
	Killed         bool                    `json:"killed,omitempty"` // this run did not end within the grace of a stop
	Boot           string                  `json:"boot,omitempty"`   // of the host, when it was started
	// Network is the network of this Runtime that its container is in, or empty.
	Network string `json:"network,omitempty"`
}

const recordVersion = 1

// A stateDir is the directory of a Runtime.
type stateDir string

func (f stateDir) record(id string) string { return filepath.Join(string(f), "pods", id+".json") }

// instance creates the directory, and reads or creates the instance name.
func (f stateDir) instance() (string, error) {
	if err := os.MkdirAll(filepath.Join(string(f), "pods"), 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(string(f), "instance")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		name := strings.ToLower(rand.Text()[:16])
		return name, podhost.ReplaceFile(path, []byte(name), true)
	}
	if err != nil {
		return "", err
	}
	name := strings.TrimSpace(string(data))
	if !plainName(name) {
		return "", fmt.Errorf("%s does not hold a name", path)
	}
	return name, nil
}

// ids returns the pods that have a record.
func (f stateDir) ids() (ids []string, err error) {
	entries, err := os.ReadDir(filepath.Join(string(f), "pods"))
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".json"); ok {
			ids = append(ids, id)
		}
	}
	return ids, err
}

func (f stateDir) read(id string) (rec record, err error) {
	data, err := os.ReadFile(f.record(id))
	if err != nil {
		return rec, err
	}
	if err := json.Unmarshal(data, &rec); err != nil {
		return rec, err
	}
	if rec.Version != recordVersion || rec.State.PodID != id {
		return rec, fmt.Errorf("version %d of pod %q", rec.Version, rec.State.PodID)
	}
	return rec, nil
}

// write does not sync. If power fails, the labels of the container still have the
// generation and the run.
func (f stateDir) write(rec record) error {
	rec.Version = recordVersion
	data, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return podhost.ReplaceFile(f.record(rec.State.PodID), data, false)
}

func (f stateDir) forget(id string) error {
	err := os.Remove(f.record(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// plainName reports whether s may be part of the name of a file, a container or a volume.
func plainName(s string) bool {
	if s == "" || len(s) > 100 || s[0] == '.' || s[0] == '-' {
		return false
	}
	return !strings.ContainsFunc(s, func(c rune) bool {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		return !letter && c != '-' && c != '_' && c != '.'
	})
}

package client

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
)

// PodOptions are the settings of a pod that the hosted service does not have (docs/interface.md 2.25).
// In a request nil is absent; in an answer it is none.
type PodOptions struct {
	StopGrace   *int64   `json:"stopGrace,omitempty"` // milliseconds before a stop kills
	ShmSize     *int     `json:"shmSize,omitempty"`   // MB of /dev/shm
	User        *string  `json:"user,omitempty"`      // of the container, instead of the image's
	Restart     string   `json:"restart,omitempty"`   // never, on-failure or always
	MaxRestarts *int     `json:"maxRestarts,omitempty"`
	StopAfter   *int64   `json:"stopAfter,omitempty"` // milliseconds after its start
	Idle        *PodIdle `json:"idle,omitempty"`
	ExposeHTTP  string   `json:"exposeHttp,omitempty"` // open or key
	// Defaults names members of a request that take their default, by their JSON names.
	Defaults []string `json:"-"`
}

// A PodIdle stops a pod whose load has been at or below both bounds for a time.
type PodIdle struct {
	For int64 `json:"for"`           // milliseconds
	GPU *int  `json:"gpu,omitempty"` // percent; default 5
	CPU *int  `json:"cpu,omitempty"`
}

// MarshalJSON writes the members that are set, and null for those of Defaults.
func (o PodOptions) MarshalJSON() ([]byte, error) {
	type plain PodOptions
	set, err := json.Marshal(plain(o))
	if err != nil || len(o.Defaults) == 0 {
		return set, err
	}
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(set, &members); err != nil {
		return nil, fmt.Errorf("client: options of a pod: %w", err)
	}
	none := make(map[string]json.RawMessage, len(o.Defaults))
	for _, name := range o.Defaults {
		none[name] = json.RawMessage("null")
	}
	maps.Copy(members, none)
	return json.Marshal(members)
}

// Options returns the settings of a pod that only this service has, defaults included.
func (p *Pods) Options(ctx context.Context, id string) (PodOptions, error) {
	return get[PodOptions](ctx, p.c, join("/v2/pods", id, "options"), nil)
}

package httpapi

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
)

// A serverState is the server on the wire (docs/interface.md 4.5).
type serverState struct {
	Name    string   `json:"name"`
	State   string   `json:"state"`
	Ready   bool     `json:"ready"`
	Reason  *string  `json:"reason"`  // why it is not ready
	Warning *string  `json:"warning"` // what will soon keep it from being ready
	Since   wireTime `json:"since"`
	Version string   `json:"version"`
}

func serverStateOf(s ProgramState) serverState {
	b := serverState{Name: s.Name, State: stateOf(s.Cordon), Ready: s.Err == nil, Since: wireTime(s.Since), Version: s.Version}
	if s.Err != nil {
		why := problem.Of(s.Err).Detail
		b.Reason = &why
	}
	if s.Warning != "" {
		b.Warning = &s.Warning
	}
	return b
}

// stateOf returns the name of a cordon state.
func stateOf(c endpoints.Cordon) string { return cmp.Or(string(c), "active") }

// A hostBody is a host on the wire.
type hostBody struct {
	ID           string         `json:"id"`
	DataCenterID string         `json:"dataCenterId"`
	State        string         `json:"state"`
	Pods         int            `json:"pods"`
	Workers      int            `json:"workers"`
	Resources    []resourceBody `json:"resources"`
}

type resourceBody struct {
	Kind     string  `json:"kind"`
	ID       *string `json:"id"`
	Total    int64   `json:"total"`
	Reserved int64   `json:"reserved"`
}

func hostBodyOf(h pods.HostState) hostBody {
	b := hostBody{ID: h.ID, DataCenterID: h.DataCenter, State: stateOf(""), Pods: len(h.Pods), Workers: len(h.Holders), Resources: []resourceBody{}}
	if h.Cordoned {
		b.State = stateOf(endpoints.Cordoned)
	}
	for _, r := range h.Resources {
		kind, id, named := strings.Cut(r.Resource, "/")
		x := resourceBody{Kind: kind, Total: r.Limit, Reserved: r.Units}
		if named {
			x.ID = &id
		}
		b.Resources = append(b.Resources, x)
	}
	return b
}

// An endpointState is an endpoint as operators see it, on the wire.
type endpointState struct {
	ID    string  `json:"id"`
	Owner *string `json:"owner"` // null: it is shared
	State string  `json:"state"`
	healthBody
}

func (c *call) endpointState(e *serverless.Endpoint) (endpointState, error) {
	b := endpointState{ID: e.ID, State: stateOf(e.Cordon)}
	if e.Owner != "" {
		b.Owner = &e.Owner
	}
	h, err := c.Jobs.Health(c.r.Context(), e.ID)
	b.healthBody = healthBodyOf(h)
	return b, err
}

// A userState is how many records a user has, on the wire.
type userState struct {
	Name      string `json:"name"`
	Pods      int    `json:"pods"`
	Endpoints int    `json:"endpoints"`
	Volumes   int    `json:"volumes"`
	Keys      int    `json:"keys"`
}

func adminState(c *call) error {
	b := struct {
		Server    *serverState    `json:"server"`
		Hosts     []hostBody      `json:"hosts"`
		Endpoints []endpointState `json:"endpoints"`
		Users     []userState     `json:"users"`
	}{Hosts: []hostBody{}, Endpoints: []endpointState{}}
	if c.program != nil {
		s := serverStateOf(c.program.State())
		b.Server = &s
	}
	ctx := c.r.Context()
	if c.Pods != nil {
		list, err := c.Pods.HostStates(ctx)
		if err != nil {
			return err
		}
		b.Hosts = bodies(list, hostBodyOf, all)
	}
	users := map[string]*userState{}
	if c.Jobs != nil {
		for e, err := range c.Jobs.AllEndpoints(ctx) {
			if err != nil {
				return err
			}
			x, err := c.endpointState(e)
			if err != nil {
				return err
			}
			b.Endpoints = append(b.Endpoints, x)
			if e.Owner != "" {
				userNamed(users, e.Owner).Endpoints++
			}
		}
	}
	err := c.countRecords(ctx, users)
	for _, name := range slices.Sorted(maps.Keys(users)) {
		b.Users = append(b.Users, *users[name])
	}
	b.Users = orEmpty(b.Users)
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, b)
}

func userNamed(users map[string]*userState, name string) *userState {
	if users[name] == nil {
		users[name] = &userState{Name: name}
	}
	return users[name]
}

// countRecords adds pods, keys and volumes. It includes every user with pods, endpoints or
// keys.
func (c *call) countRecords(ctx context.Context, users map[string]*userState) error {
	if c.Pods != nil {
		owners, err := c.Pods.Owners(ctx)
		if err != nil {
			return err
		}
		for name, n := range owners {
			userNamed(users, name).Pods = n
		}
	}
	if c.Accounts != nil {
		list, err := c.Accounts.All(ctx)
		if err != nil {
			return err
		}
		for _, k := range list {
			userNamed(users, k.User).Keys++
		}
	}
	if c.Volumes == nil {
		return nil
	}
	for name, u := range users {
		list, err := c.Volumes.List(ctx, name)
		if err != nil {
			return err
		}
		u.Volumes = len(list)
	}
	return nil
}

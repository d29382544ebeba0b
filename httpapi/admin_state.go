package httpapi

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/podyard/podyard/httpapi/incidents"
	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
)

func stateOperations() []operation {
	return group(APIControl, AreaAdmin,
		op("adminState", "GET /v2/admin/state", ScopeOperator, adminState, added),
	)
}

func (b *describer) describeState() map[string]description {
	host, endpoint, server := openapi.For[hostBody](&b.Builder), openapi.For[endpointState](&b.Builder), openapi.For[serverState](&b.Builder)
	lists := fields(map[string]*openapi.Schema{
		"server": openapi.OrNull(server), "servers": openapi.List(openapi.For[namedServer](&b.Builder)), "hosts": openapi.List(host), "endpoints": openapi.List(endpoint), "users": openapi.List(openapi.For[userState](&b.Builder)),
		"incidents": openapi.List(openapi.For[incidentBody](&b.Builder)),
	}, "endpoints", "hosts", "incidents", "server", "servers", "users")
	return map[string]description{
		"adminState": {summary: "Get the state of the server", answers: ok(lists), params: []*openapi.Parameter{
			flag("claims", "Also which pods and workers have what of each host."),
		}},
	}
}

// A serverState is the server on the wire (docs/interface.md 4.5).
type serverState struct {
	Name    string   `json:"name"`
	State   string   `json:"state"`
	Ready   bool     `json:"ready"`
	Reason  *string  `json:"reason"`  // why it is not ready
	Warning *string  `json:"warning"` // what will soon keep it from being ready
	Since   wireTime `json:"since"`
	Version string   `json:"version"`
	Jobs    *int     `json:"jobs"` // in progress at its workers, while it is drained; nil: it is not, or that is not known
}

// A namedServer is one of the servers of the same stores, on the wire.
type namedServer struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	State   string `json:"state"` // active, cordoned, drained or lost
}

// serversOf returns all servers of the same stores, this one first.
func serversOf(s *ProgramState) []namedServer {
	list := []namedServer{{s.Name, s.Version, stateOf(s.Cordon)}}
	for _, o := range s.Others {
		list = append(list, namedServer(o))
	}
	return list
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

// serverState is serverStateOf with the jobs of a server that is drained. They are not known while the store
// is away.
func (c *call) serverState(s ProgramState) serverState {
	b := serverStateOf(s)
	if s.Cordon != endpoints.Drained || c.Jobs == nil {
		return b
	}
	sum, ctx := 0, c.r.Context()
	for e, err := range c.Jobs.AllEndpoints(ctx) {
		if err != nil {
			return b
		}
		n, err := c.Jobs.JobsHere(ctx, e.ID)
		if err != nil {
			return b
		}
		sum += n
	}
	b.Jobs = &sum
	return b
}

// An incidentBody is an incident on the wire.
type incidentBody struct {
	Cause    string   `json:"cause"`
	Severity string   `json:"severity"` // critical, warning or note
	Kind     string   `json:"kind"`     // what id names: endpoint, host, receiver, server or user; empty: this server
	ID       string   `json:"id"`
	Name     string   `json:"name"`
	Since    wireTime `json:"since"`
	Who      []string `json:"who"`  // users who are affected; empty: everybody
	More     int      `json:"more"` // users who are not in who
	Act      string   `json:"act"`
	Detail   string   `json:"detail"`
}

func incidentBodyOf(i incidents.Incident) incidentBody {
	return incidentBody{
		string(i.Cause), string(i.Severity), i.Kind, i.ID, i.Name, wireTime(i.Since), orEmpty(i.Who), i.More, i.Act, i.Detail,
	}
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
	CordonedAt   *wireTime      `json:"cordonedAt"`
	Runtime      *callsBody     `json:"runtime"`             // nil: another server has the host
	Isolation    string         `json:"isolation,omitempty"` // of processes: bubblewrap or none
	Claims       []claimBody    `json:"claims,omitempty"`
}

// A callsBody is what a server has asked of the runtime of a host since it started.
type callsBody struct {
	Calls         int64            `json:"calls"`
	Failed        int64            `json:"failed"`
	WatchRestarts int64            `json:"watchRestarts"`
	LastFailure   *callFailureBody `json:"lastFailure"`
}

type callFailureBody struct {
	At    wireTime `json:"at"`
	Call  string   `json:"call"`
	Error string   `json:"error"`
}

// A claimBody is what a pod or a worker has of a host.
type claimBody struct {
	Kind      string         `json:"kind"` // pod or worker
	ID        string         `json:"id"`
	Name      string         `json:"name,omitempty"`
	Image     string         `json:"image"`
	Owner     *string        `json:"owner"`              // null: of a shared endpoint
	Endpoint  string         `json:"endpoint,omitempty"` // whose worker it is
	Resources []reservedBody `json:"resources"`
}

type reservedBody struct {
	Kind     string  `json:"kind"`
	ID       *string `json:"id"`
	Reserved int64   `json:"reserved"`
}

type resourceBody struct {
	Kind     string  `json:"kind"`
	ID       *string `json:"id"`
	Total    int64   `json:"total"`
	Reserved int64   `json:"reserved"`
}

func hostBodyOf(h pods.HostState) hostBody {
	b := hostBody{ID: h.ID, DataCenterID: h.DataCenter, State: stateOf(""), Pods: len(h.Pods), Workers: len(h.Workers), Resources: []resourceBody{}}
	if h.Cordoned {
		b.State = stateOf(endpoints.Cordoned)
	}
	b.CordonedAt, b.Isolation = orNever(h.CordonedAt), h.Isolation
	for _, r := range h.Resources {
		kind, id := resourceName(r.Resource)
		b.Resources = append(b.Resources, resourceBody{Kind: kind, ID: id, Total: r.Limit, Reserved: r.Units})
	}
	if n := h.Calls; n != nil {
		b.Runtime = &callsBody{Calls: n.Calls, Failed: n.Failed, WatchRestarts: n.WatchRestarts}
		if last := n.Last; !last.At.IsZero() {
			b.Runtime.LastFailure = &callFailureBody{wireTime(last.At), last.Call, last.Error}
		}
	}
	return b
}

// resourceName returns the kind of a resource, and the flavor or GPU type if it has one.
func resourceName(resource string) (kind string, id *string) {
	kind, name, named := strings.Cut(resource, "/")
	if named {
		id = &name
	}
	return kind, id
}

// hostBodyWithClaims is hostBodyOf with who has what of the host.
func hostBodyWithClaims(h pods.HostState) hostBody {
	b := hostBodyOf(h)
	for _, p := range h.Pods {
		b.claim(claimBody{Kind: "pod", ID: p.ID, Name: p.Name, Image: p.Want.Applied.Image, Owner: &p.Owner}, h.Named(p.Placement.Claims))
	}
	for _, r := range h.Workers {
		b.claim(claimBody{Kind: "worker", ID: r.Holder, Image: r.Image, Owner: orNull(r.Owner), Endpoint: r.Endpoint}, h.Named(r.Placement.Claims))
	}
	return b
}

// claim adds what somebody has of the host, unless it is nothing.
func (b *hostBody) claim(c claimBody, claims []pods.Claim) {
	for _, r := range claims {
		kind, id := resourceName(r.Resource)
		c.Resources = append(c.Resources, reservedBody{kind, id, r.Units})
	}
	if len(claims) > 0 {
		b.Claims = append(b.Claims, c)
	}
}

// An endpointState is an endpoint as operators see it, on the wire.
type endpointState struct {
	ID    string  `json:"id"`
	Owner *string `json:"owner"` // null: it is shared
	State string  `json:"state"`
	healthBody

	Name   string `json:"name"`
	Paused bool   `json:"paused"` // its owner lets no job start
}

func (c *call) endpointState(e *serverless.Endpoint) (endpointState, error) {
	b := endpointState{ID: e.ID, State: stateOf(e.Cordon), Name: e.Name, Paused: e.QueueSettings().Paused}
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
	claims, err := c.queryFlag("claims")
	if err != nil {
		return err
	}
	host := hostBodyOf
	if claims {
		host = hostBodyWithClaims
	}
	b := stateBody{Hosts: []hostBody{}, Endpoints: []endpointState{}, Users: []userState{}, Incidents: []incidentBody{}, Servers: []namedServer{}}
	ready := true
	if c.program != nil {
		now := c.program.State()
		s := c.serverState(now)
		b.Server, b.Incidents, ready = &s, bodies(now.Incidents, incidentBodyOf, all), s.Ready
		b.Servers = serversOf(&now)
	}
	// While the store is away, what is wrong is all that there is to say.
	if err := c.fillState(&b, host); err != nil && (ready || len(b.Incidents) == 0) {
		return err
	}
	return writeJSON(c.w, http.StatusOK, b)
}

// A stateBody is the state of the server on the wire.
type stateBody struct {
	Server    *serverState    `json:"server"`
	Servers   []namedServer   `json:"servers"`
	Incidents []incidentBody  `json:"incidents"`
	Hosts     []hostBody      `json:"hosts"`
	Endpoints []endpointState `json:"endpoints"`
	Users     []userState     `json:"users"`
}

// fillState adds what the stores have.
func (c *call) fillState(b *stateBody, host func(pods.HostState) hostBody) error {
	ctx := c.r.Context()
	if c.Pods != nil {
		list, err := c.Pods.HostStates(ctx)
		if err != nil {
			return err
		}
		b.Hosts = bodies(list, host, all)
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
	return err
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

package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Admin has the acts of operators (docs/interface.md 4.5). All are additions.
type Admin struct{ c *Client }

// A State is the state of a server.
type State struct {
	Server *struct {
		Name    string    `json:"name"`
		State   string    `json:"state"` // active, cordoned or drained
		Ready   bool      `json:"ready"`
		Reason  string    `json:"reason"`  // why it is not ready
		Warning string    `json:"warning"` // what will soon keep it from being ready
		Since   time.Time `json:"since"`
		Version string    `json:"version"`
		Jobs    *int      `json:"jobs"` // in progress at its workers, while it is drained; nil: it is not, or that is not known
	} `json:"server"`
	// Servers are all servers of the same stores, the one that answers first.
	Servers []struct {
		Name    string `json:"name"`
		Version string `json:"version"`
		State   string `json:"state"` // active, cordoned, drained or lost
	} `json:"servers"`
	Incidents []Incident `json:"incidents"` // what is wrong, the most severe first
	Hosts     []struct {
		ID           string     `json:"id"`
		DataCenterID string     `json:"dataCenterId"`
		State        string     `json:"state"`      // active or cordoned
		CordonedAt   *time.Time `json:"cordonedAt"` // nil: it is not, or this is not known
		Pods         int        `json:"pods"`
		Workers      int        `json:"workers"`
		Resources    []struct {
			Kind     string `json:"kind"` // vcpu, memory or gpu
			ID       string `json:"id"`   // flavor or type
			Total    int64  `json:"total"`
			Reserved int64  `json:"reserved"`
		} `json:"resources"`
		// Runtime has the calls of the runtime since the server started; nil where another
		// server has the host.
		Runtime *struct {
			Calls         int64 `json:"calls"`
			Failed        int64 `json:"failed"`
			WatchRestarts int64 `json:"watchRestarts"`
			LastFailure   *struct {
				At    time.Time `json:"at"`
				Call  string    `json:"call"`
				Error string    `json:"error"`
			} `json:"lastFailure"`
		} `json:"runtime"`
		Claims []hostClaim `json:"claims,omitempty"` // only of StateWithClaims
	} `json:"hosts"`
	Endpoints []struct {
		ID    string `json:"id"`
		Owner string `json:"owner"` // a shared one has no owner
		State string `json:"state"` // active, cordoned or drained
		Health

		Name   string `json:"name"`
		Paused bool   `json:"paused"` // its owner lets no job start
	} `json:"endpoints"`
	Users []struct {
		Name      string `json:"name"`
		Pods      int    `json:"pods"`
		Endpoints int    `json:"endpoints"`
		Volumes   int    `json:"volumes"`
		Keys      int    `json:"keys"`
	} `json:"users"`
}

// An Incident is one cause of trouble (docs/interface.md 4.5).
type Incident struct {
	Cause    string    `json:"cause"`    // such as crashLoop
	Severity string    `json:"severity"` // critical, warning or note
	Kind     string    `json:"kind"`     // what ID names: endpoint, host, receiver, server or user; empty: this server
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	Since    time.Time `json:"since"`
	Who      []string  `json:"who"`  // users who are affected; empty: everybody
	More     int       `json:"more"` // users who are not in Who
	Act      string    `json:"act"`
	Detail   string    `json:"detail"`
}

// A hostClaim is what a pod or a worker has of a host.
type hostClaim struct {
	Kind      string `json:"kind"` // pod or worker
	ID        string `json:"id"`
	Name      string `json:"name"`     // of the pod
	Image     string `json:"image"`    // that runs there
	Owner     string `json:"owner"`    // empty: of a shared endpoint
	Endpoint  string `json:"endpoint"` // whose worker it is
	Resources []struct {
		Kind     string `json:"kind"` // vcpu, memory or gpu
		ID       string `json:"id"`   // flavor or type
		Reserved int64  `json:"reserved"`
	} `json:"resources"`
}

// StateWithClaims is State with who has what of each host.
func (a *Admin) StateWithClaims(ctx context.Context) (State, error) {
	return get[State](ctx, a.c, "/v2/admin/state", url.Values{"claims": {"true"}})
}

// State returns the state of the server.
func (a *Admin) State(ctx context.Context) (State, error) {
	return get[State](ctx, a.c, "/v2/admin/state", nil)
}

// A Target is a host, an endpoint or a server: exactly one of the three.
type Target struct {
	Host     string `json:"host,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`
	Server   string `json:"server,omitempty"`
	StopPods bool   `json:"stopPods,omitempty"` // of the host, when it is drained
}

// Cordon keeps new work off a target. It returns the state that the target has then.
func (a *Admin) Cordon(ctx context.Context, t Target) (state string, err error) {
	return a.act(ctx, "cordon", t)
}

// Uncordon takes back a cordon or a drain. It returns the state that the target has then.
func (a *Admin) Uncordon(ctx context.Context, t Target) (state string, err error) {
	return a.act(ctx, "uncordon", t)
}

// Drain is a cordon that ends workers, too, each after its job. It returns the state that the target
// has then: a host is cordoned, and an endpoint and a server are drained.
func (a *Admin) Drain(ctx context.Context, t Target) (state string, err error) {
	return a.act(ctx, "drain", t)
}

func (a *Admin) act(ctx context.Context, name string, t Target) (string, error) {
	r, err := to(a.c.control, http.MethodPost, "/v2/admin/"+name, nil).with(t)
	if err != nil {
		return "", err
	}
	r.again = always
	var out struct{ Host, Endpoint, Server struct{ State string } }
	_, err = a.c.do(ctx, r, &out)
	return out.Host.State + out.Endpoint.State + out.Server.State, err
}

// Reload makes the server read its configuration anew. It returns the fields that have
// changed, and those that need a restart.
func (a *Admin) Reload(ctx context.Context) (changed, restart []string, err error) {
	var out struct{ Changed, Restart []string }
	_, err = a.c.do(ctx, to(a.c.control, http.MethodPost, "/v2/admin/reload", nil), &out)
	return out.Changed, out.Restart, err
}

// An AuditRecord is a change or a refusal (docs/interface.md 2.19).
type AuditRecord struct {
	Time                                                                    time.Time
	Kind, User, Key, Operation, Path, Record, Owner, Source, Agent, Request string
	Status, Dropped                                                         int
}

// An AuditQuery selects records. The zero value selects the newest 100.
type AuditQuery struct {
	Limit           int // at most 1000
	Before, Since   time.Time
	Kind            string // change, refusal or dropped; empty: all
	User, Operation string
}

// Audit lists what was changed and refused, newest first.
func (a *Admin) Audit(ctx context.Context, q AuditQuery) ([]AuditRecord, error) {
	v := url.Values{}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	for name, at := range map[string]time.Time{"before": q.Before, "since": q.Since} {
		if !at.IsZero() {
			v.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	for name, value := range map[string]string{"kind": q.Kind, "user": q.User, "operation": q.Operation} {
		if value != "" {
			v.Set(name, value)
		}
	}
	out, err := get[struct{ Records []AuditRecord }](ctx, a.c, "/v2/admin/audit", v)
	return out.Records, err
}

// EraseJobs ends and deletes the jobs of a user on all endpoints, and returns how many there were.
// Their bytes are free soon after.
func (a *Admin) EraseJobs(ctx context.Context, user string) (int, error) {
	r := to(a.c.control, http.MethodDelete, join("/v2/admin/users", user, "jobs"), nil)
	r.again = always
	var out struct{ Jobs int }
	_, err := a.c.do(ctx, r, &out)
	return out.Jobs, err
}

// EraseUser ends and deletes everything of a user, and counts the records by their kind:
// "pods". Repeat it while "waiting" is not 0.
func (a *Admin) EraseUser(ctx context.Context, user string) (out map[string]int, err error) {
	r := to(a.c.control, http.MethodDelete, join("/v2/admin/users", user), nil)
	r.again = ifRefused // the counts of an answer that was lost would be lost
	_, err = a.c.do(ctx, r, &out)
	return out, err
}

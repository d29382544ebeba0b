package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
)

func cordonOperations() []operation {
	return group(APIControl, AreaAdmin,
		op("cordon", "POST /v2/admin/cordon", ScopeOperator, cordon, added),
		op("uncordon", "POST /v2/admin/uncordon", ScopeOperator, uncordon, added),
		op("drain", "POST /v2/admin/drain", ScopeOperator, drain, added),
	)
}

func (b *describer) describeCordons() map[string]description {
	host, endpoint, server := openapi.For[hostBody](&b.Builder), openapi.For[endpointState](&b.Builder), openapi.For[serverState](&b.Builder)
	state := fields(map[string]*openapi.Schema{"host": host, "endpoint": endpoint, "server": server})
	target := b.Component("CordonRequest", cordonBody(false))
	const exactly = "Exactly one of host, endpoint and server must be there. "
	return map[string]description{
		"cordon":   {summary: "Keep new work off a host, an endpoint or the server", text: exactly, body: target, answers: ok(state)},
		"uncordon": {summary: "Take back a cordon or a drain", text: exactly, body: target, answers: ok(state)},
		"drain":    {summary: "Cordon, and end the workers after their jobs", text: exactly, body: b.Component("DrainRequest", cordonBody(true)), answers: ok(state)},
	}
}

func cordonBody(drain bool) *openapi.Schema {
	s := recorded(func(o *object) { o.cordonTarget(&target{}, drain) })
	if !drain {
		delete(s.Properties, "stopPods")
	}
	for _, name := range []string{"host", "endpoint", "server"} {
		s.At(name).NotEmpty()
	}
	return s
}

// A target is what an operator cordons or drains.
type target struct {
	kind string // host, endpoint or server
	id   string
	// stopPods says that a drain of a host stops its pods, too.
	stopPods bool
}

var errNoServer = problem.New(problem.NotFound, "server not found")

// cordonTarget reads the body of cordon, uncordon and drain.
func (c *call) cordonTarget(drain bool) (t target, err error) {
	var faults problem.Violations
	o, err := c.jsonObject(&faults)
	if err != nil {
		return t, err
	}
	o.cordonTarget(&t, drain)
	return t, faults.Err([]string{"host", "endpoint", "server", "stopPods"})
}

func (o *object) cordonTarget(t *target, drain bool) {
	named := 0
	for _, kind := range []string{"host", "endpoint", "server"} {
		if !o.has(kind) {
			continue
		}
		named++
		if t.kind, t.id = kind, o.text(kind); t.id == "" && !o.faults.Has("/"+kind) {
			o.faults.Add(problem.Invalid, "/"+kind, "must not be empty")
		}
	}
	if stop := o.boolean("stopPods"); stop != nil {
		t.stopPods = *stop
		if !drain || t.kind != "host" {
			o.faults.Add(problem.BadRequest, "/stopPods", "is for the drain of a host")
		}
	}
	o.unknown()
	if named != 1 {
		o.faults.Add(problem.BadRequest, "", "exactly one of host, endpoint and server must be there")
	}
}

func cordon(c *call) error   { return c.setCordon(endpoints.Cordoned) }
func uncordon(c *call) error { return c.setCordon(endpoints.NotCordoned) }
func drain(c *call) error    { return c.setCordon(endpoints.Drained) }

func (c *call) setCordon(to endpoints.Cordon) error {
	t, err := c.cordonTarget(to == endpoints.Drained)
	if err != nil {
		return err
	}
	switch t.kind {
	case "host":
		return c.cordonHost(to, t)
	case "endpoint":
		return c.cordonEndpoint(to, t.id)
	}
	if c.program == nil {
		return errNoServer
	}
	if name := c.program.State().Name; name != t.id { // only the server itself can change its state
		return problem.Newf(problem.NotFound, "server not found: %q has answered, and each server is asked at its own address", name)
	}
	c.program.Cordon(to)
	return writeJSON(c.w, http.StatusOK, struct {
		Server serverState `json:"server"`
	}{c.serverState(c.program.State())})
}

func (c *call) cordonHost(to endpoints.Cordon, t target) error {
	if c.Pods == nil {
		return pods.ErrNoHost
	}
	ctx := c.r.Context()
	act := c.Pods.Cordon
	if to == endpoints.NotCordoned {
		act = c.Pods.Uncordon
	}
	if err := act(ctx, t.id); err != nil {
		return err
	}
	h, err := c.hostState(ctx, t.id)
	if err != nil {
		return err
	}
	if to == endpoints.Drained {
		if c.program != nil {
			c.program.DrainHolders(bodies(h.Workers, func(r pods.Reservation) string { return r.Holder }, all))
		}
		if t.stopPods {
			if err := c.stopPods(ctx, h.Pods); err != nil {
				return err
			}
		}
	}
	return writeJSON(c.w, http.StatusOK, struct {
		Host hostBody `json:"host"`
	}{hostBodyOf(h)})
}

// hostState returns the state of one host.
func (c *call) hostState(ctx context.Context, id string) (pods.HostState, error) {
	list, err := c.Pods.HostStates(ctx)
	if err != nil {
		return pods.HostState{}, err
	}
	for _, h := range list {
		if h.ID == id {
			return h, nil
		}
	}
	return pods.HostState{}, pods.ErrNoHost
}

// stopPods stops the pods that can be stopped: not those that are locked or have ended.
func (c *call) stopPods(ctx context.Context, list []*pods.Pod) error {
	var errs []error
	for _, p := range list {
		_, err := c.Pods.Act(ctx, p.Owner, p.ID, pods.Stop)
		if k := problem.KindOf(err); err != nil && k != problem.Conflict && k != problem.NotFound {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (c *call) cordonEndpoint(to endpoints.Cordon, id string) error {
	if c.Jobs == nil {
		return serverless.ErrNoEndpoint
	}
	e, err := c.Jobs.CordonEndpoint(c.r.Context(), id, to)
	if err != nil {
		return err
	}
	b, err := c.endpointState(e)
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, struct {
		Endpoint endpointState `json:"endpoint"`
	}{b})
}

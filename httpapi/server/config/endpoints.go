package config

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
)

// A sharedEndpoint is an endpoint of the configuration, which every user may use.
type sharedEndpoint struct {
	id      string
	place   jsontext.Pointer // in the configuration
	request endpoints.CreateRequest
	bare    endpoints.Type // of one without an image, whose workers somebody else starts; empty: it has one
}

// declare makes the endpoint.
func (e *sharedEndpoint) declare(ctx context.Context, jobs *serverless.Service) error {
	var err error
	switch {
	case e.bare == "":
		_, err = jobs.DeclareEndpoint(ctx, e.id, e.request)
	case e.bare == endpoints.LoadBalancerType:
		err = jobs.EnsureBalanced(ctx, e.id)
	default:
		err = jobs.EnsureEndpoint(ctx, e.id)
	}
	if err != nil {
		return e.explain(err)
	}
	return e.check(ctx, jobs)
}

// check says why the endpoint cannot be made.
func (e *sharedEndpoint) check(ctx context.Context, jobs *serverless.Service) error {
	if e.bare == "" {
		if err := jobs.CheckDeclareEndpoint(ctx, e.id, e.request); err != nil {
			return e.explain(err)
		}
		return nil
	}
	old, err := jobs.Endpoint(ctx, e.id)
	switch {
	case errors.Is(err, serverless.ErrNoEndpoint):
		return nil
	case err != nil:
		return e.explain(err)
	case old.Owner != "":
		return e.explain(fmt.Errorf("%q is an endpoint of the user %q, which must be deleted first", e.id, old.Owner))
	case old.Container.Image != "":
		return e.explain(fmt.Errorf("the endpoint has workers of the image %q: take it out of the configuration first, which cancels its jobs, or use another id", old.Container.Image))
	}
	return nil
}

// readBare reads an endpoint without an image.
func (e *sharedEndpoint) readBare(members map[string]jsontext.Value) error {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if name != "id" && name != "type" {
			return errorAt(e.place.AppendToken("image"), "is required with %q: an endpoint whose workers somebody else starts has only an id and a type", name)
		}
	}
	kind := string(endpoints.QueueType)
	if v, ok := members["type"]; ok && json.Unmarshal(v, &kind) != nil {
		kind = ""
	}
	if e.bare = endpoints.Type(kind); e.bare != endpoints.QueueType && e.bare != endpoints.LoadBalancerType {
		return errorAt(e.place.AppendToken("type"), "must be one of %s, %s", endpoints.QueueType, endpoints.LoadBalancerType)
	}
	return nil
}

// Defaults of an endpoint in the configuration, as JSON, beside those of a request.
var endpointDefaults = map[string]jsontext.Value{
	"type":    jsontext.Value(`"QUEUE"`),
	"scaling": jsontext.Value(`{"type":"QUEUE_DELAY","queueDelay":4}`),
}

// checkEndpoints reads the endpoints of the configuration.
func (c *Config) checkEndpoints() error {
	seen := map[string]bool{}
	for i, v := range c.Endpoints {
		place := elementAt("/endpoints", i)
		e, err := readEndpoint(place, v)
		if err != nil {
			return err
		}
		if seen[e.id] {
			return errTaken(e)
		}
		seen[e.id] = true
		c.shared = append(c.shared, e)
	}
	return nil
}

func errTaken(e sharedEndpoint) error {
	return errorAt(e.place.AppendToken("id"), "%q is there already", e.id)
}

func readEndpoint(place jsontext.Pointer, v jsontext.Value) (e sharedEndpoint, err error) {
	e.place = place
	members := map[string]jsontext.Value{}
	if err := json.Unmarshal(v, &members); err != nil {
		return e, errorAt(place, "must be a JSON object")
	}
	if err := json.Unmarshal(members["id"], &e.id); err != nil {
		return e, errorAt(place.AppendToken("id"), "must be a string")
	}
	if err := endpoints.CheckID(e.id); err != nil {
		return e, errorAt(place.AppendToken("id"), "%w", err)
	}
	if _, ok := members["image"]; !ok {
		return e, e.readBare(members)
	}
	if _, ok := members["name"]; !ok {
		members["name"] = members["id"]
	}
	delete(members, "id")
	for name, value := range endpointDefaults {
		if _, ok := members[name]; !ok {
			members[name] = value
		}
	}
	body, err := json.Marshal(members, json.Deterministic(true))
	if err != nil {
		return e, errorAt(place, "%w", err)
	}
	if e.request, err = httpapi.DecodeEndpoint(body); err != nil {
		return e, errorAt(place, "%w", err)
	}
	return e, nil
}

// explain says everything that is wrong with a request, in words of the file.
func (e *sharedEndpoint) explain(err error) error {
	var p *problem.Error
	if !errors.As(err, &p) || len(p.Errors) == 0 {
		return errorAt(e.place, "%w", err)
	}
	var all fieldErrors
	for _, fault := range p.Errors {
		member, what, found := strings.Cut(fault, ": ")
		if !found || !strings.HasPrefix(member, "/") {
			member, what = "", fault
		}
		all = append(all, &fieldError{e.place + jsontext.Pointer(member), errors.New(what)})
	}
	return all
}

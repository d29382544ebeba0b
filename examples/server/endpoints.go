package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/worker"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
)

// A sharedEndpoint is an endpoint of the configuration, which every user may use.
type sharedEndpoint struct {
	id      string
	place   jsontext.Pointer // in the configuration; empty: not of it
	request serverless.CreateEndpointRequest
}

// Defaults of an endpoint in the configuration, as JSON, beside those of a request.
var endpointDefaults = map[string]jsontext.Value{
	"type":    jsontext.Value(`"QUEUE"`),
	"scaling": jsontext.Value(`{"type":"QUEUE_DELAY","queueDelay":4}`),
}

// endpoints reads the endpoints of the configuration: each is what POST /v2/serverless
// takes, and an id.
func (c *config) endpoints() ([]sharedEndpoint, error) {
	var list []sharedEndpoint
	seen := map[string]bool{echoEndpoint: true, helloEndpoint: true}
	for i, v := range c.Endpoints {
		place := at("/endpoints", i)
		e, err := readEndpoint(place, v)
		if err != nil {
			return nil, err
		}
		if seen[e.id] {
			return nil, wrongAt(place.AppendToken("id"), "%q is there already", e.id)
		}
		seen[e.id] = true
		list = append(list, e)
	}
	return list, nil
}

func readEndpoint(place jsontext.Pointer, v jsontext.Value) (e sharedEndpoint, err error) {
	e.place = place
	members := map[string]jsontext.Value{}
	if err := json.Unmarshal(v, &members); err != nil {
		return e, wrongAt(place, "must be a JSON object")
	}
	if err := json.Unmarshal(members["id"], &e.id); err != nil {
		return e, wrongAt(place.AppendToken("id"), "must be a string")
	}
	if err := serverless.CheckEndpointID(e.id); err != nil {
		return e, wrongAt(place.AppendToken("id"), "%w", err)
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
		return e, wrongAt(place, "%w", err)
	}
	if e.request, err = httpapi.DecodeEndpoint(body); err != nil {
		return e, wrongAt(place, "%w", err)
	}
	return e, nil
}

// declare has the endpoints of the configuration be there, and hello.
func (v *server) declare(ctx context.Context) error {
	list, err := v.settings.endpoints()
	if err != nil {
		return err
	}
	for _, e := range append(list, v.hello()) {
		_, err := v.jobs.DeclareEndpoint(ctx, e.id, e.request)
		if err == nil {
			continue
		}
		if e.place == "" {
			return fmt.Errorf("endpoint %s: %w", e.id, err)
		}
		return v.settings.inConfig(e.spell(err))
	}
	return nil
}

// spell says everything that is wrong with a request, in words of the file.
func (e *sharedEndpoint) spell(err error) error {
	var p *problem.Error
	if !errors.As(err, &p) || len(p.Errors) == 0 {
		return wrongAt(e.place, "%w", err)
	}
	var all []error
	for _, fault := range p.Errors {
		member, what, found := strings.Cut(fault, ": ")
		if !found || !strings.HasPrefix(member, "/") {
			member, what = "", fault
		}
		all = append(all, wrongAt(e.place+jsontext.Pointer(member), "%s", what))
	}
	return oneLine(all)
}

const (
	echoEndpoint  = "echo"
	echoWorker    = "local-echo"
	helloEndpoint = "hello"
	helloImage    = "podyard/hello"
	// helloCommand has this program be a worker of the endpoint hello.
	helloCommand = "podyard-hello"
)

// hello is an endpoint whose worker is this program, started again, on the smallest
// machine there is.
func (v *server) hello() sharedEndpoint {
	flavor := v.pods.Catalog().CPUs[0]
	name, image, most, idle := helloEndpoint, helloImage, 1, 3*time.Second
	return sharedEndpoint{id: helloEndpoint, request: serverless.CreateEndpointRequest{
		Type: serverless.QueueType,
		EndpointSettings: serverless.EndpointSettings{
			Name: &name, Image: &image,
			CPU:     []serverless.CPUSettings{{ID: flavor.ID, VCPU: flavor.VCPU.Min}},
			Workers: serverless.WorkerSettings{Max: &most, Idle: &idle},
			Scaling: &serverless.Scaling{Type: serverless.QueueDelay, Delay: serverless.MinDelay},
		},
	}}
}

// workHello greets until it is told to end.
func workHello(ctx context.Context, env func(string) string) error {
	o, err := worker.FromEnv(env)
	if err != nil {
		return err
	}
	return worker.Run(ctx, serverless.WorkerFunc(greeting), o)
}

// greeting answers {"name":"you"} with {"greeting":"hello, you"}.
func greeting(_ context.Context, t *serverless.Task) ([]byte, error) {
	in := struct {
		Name string `json:"name"`
	}{"world"}
	if err := json.Unmarshal(t.Input, &in); err != nil {
		return nil, errors.New("hello: name must be a string")
	}
	return json.Marshal(struct {
		Greeting string `json:"greeting"`
	}{"hello, " + in.Name})
}

// A base is where workers find the jobs API. It is empty before this server listens and
// when it ends: no worker is started then.
type base struct{ url atomic.Pointer[string] }

func (b *base) get() string {
	if s := b.url.Load(); s != nil {
		return *s
	}
	return ""
}

// set makes it the address that a server listens on, as a process on this host reaches it.
func (b *base) set(addr net.Addr) {
	host := "127.0.0.1"
	port := 0
	if tcp, ok := addr.(*net.TCPAddr); ok {
		port = tcp.Port
		if !tcp.IP.IsUnspecified() {
			host = tcp.IP.String()
		}
	}
	s := "http://" + net.JoinHostPort(host, strconv.Itoa(port)) + "/v2"
	b.url.Store(&s)
}

func (b *base) clear() { b.url.Store(nil) }

// Command fleet is a program whose endpoint is served by processes: it starts them when
// jobs come and ends them when there are no more. Each is this program again, with the
// argument "work", and comes for its jobs over HTTP, as an SDK in a container would.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/backend/process"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/serverless"
)

func main() {
	if err := program(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func program(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(args) == 1 && args[0] == "work" {
		return work(ctx)
	}
	return run(ctx)
}

func run(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:8083")
	if err != nil {
		return err
	}
	y, err := open(ctx, "fleet-data", []string{self, "work"}, "http://"+l.Addr().String()+"/v2")
	if err != nil {
		return errors.Join(err, l.Close())
	}
	h, err := y.handler("secret")
	if err != nil {
		return errors.Join(err, l.Close(), y.runtime.Close(ctx))
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { log.Print(srv.Serve(l)) }()
	err = y.jobs.Run(ctx) // until ctx ends
	return errors.Join(err, srv.Close(), y.runtime.Close(context.WithoutCancel(ctx)))
}

// A yard is an endpoint, "greet", and the processes that serve it.
type yard struct {
	runtime *process.Runtime
	fleet   *podfleet.Fleet
	jobs    *serverless.Service
}

// open makes a yard that keeps the files of its processes in dir. They run command, and
// reach the jobs API at api.
func open(ctx context.Context, dir string, command []string, api string) (*yard, error) {
	rt, err := process.Open(dir, &process.Options{Images: map[string]process.Image{"greeter": {Command: command}}})
	if err != nil {
		return nil, err
	}
	offers := catalog.Local(4, 8)
	host := pods.Host{
		ID: "here", DataCenter: catalog.LocalDataCenter, Runtime: rt,
		VCPU: map[string]int{catalog.HostFlavor: 4}, Memory: 8,
	}
	fleet, err := podfleet.New(memory.NewPods(), offers, []pods.Host{host}, nil)
	if err != nil {
		return nil, errors.Join(err, rt.Close(ctx))
	}
	y := &yard{runtime: rt, fleet: fleet}
	y.jobs = serverless.New(memory.NewJobs(), memory.NewEndpoints(), &serverless.Options{
		Fleet: y.fleet, Catalog: podfleet.Catalog(offers), WorkerURL: func() string { return api },
	})
	if err := y.declare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("fleet: %w", err), rt.Close(ctx))
	}
	return y, nil
}

// declare makes the endpoint: nobody serves it without jobs, two processes at most with
// many of them, and those that no job needs for two seconds end.
func (y *yard) declare(ctx context.Context) error {
	most, idle := 2, 2*time.Second
	name, image := "greet", "greeter"
	_, err := y.jobs.DeclareEndpoint(ctx, "greet", serverless.CreateEndpointRequest{
		Type: serverless.QueueType,
		EndpointSettings: serverless.EndpointSettings{
			Name: &name, Image: &image, Env: map[string]string{"GREETING": "hello"},
			CPU:     []serverless.CPUSettings{{ID: catalog.HostFlavor, VCPU: 2}},
			Workers: serverless.WorkerSettings{Max: &most, Idle: &idle},
			Scaling: &serverless.Scaling{Type: serverless.QueueDelay, Delay: time.Second},
		},
	})
	return err
}

// handler is the jobs API, with the routes of the workers.
func (y *yard) handler(key string) (http.Handler, error) {
	keys, err := httpapi.NewKeys([]httpapi.Key{{Secret: key, User: "me", Scopes: []string{"endpoint:greet:run"}}}, time.Now)
	if err != nil {
		return nil, err
	}
	return httpapi.NewJobs(y.jobs, &httpapi.Options{Auth: keys}), nil
}

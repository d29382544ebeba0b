// Command fleet serves an endpoint with processes. It starts them when jobs come and
// ends them when there are no more. Each process is this program again, with the
// argument "work". It takes its jobs over HTTP, as an SDK in a container does.
package main

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/podyard/podyard/backend/machine"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/process"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
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
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:8083")
	if err != nil {
		return err
	}
	srv, err := open(ctx, "fleet-data", []string{self, "work"}, "http://"+l.Addr().String()+"/v2")
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return srv.Run(ctx, server.On(l, srv.Handler()))
}

// open makes a server whose endpoint "greet" has processes for workers. They run command,
// have their files in dir, and reach the jobs API at api.
func open(ctx context.Context, dir string, command []string, api string) (*server.Server, error) {
	rt, err := process.Open(dir, &process.Options{Images: map[string]process.Image{"greeter": {Command: command}}, Logger: slog.Default()})
	if err != nil {
		return nil, err
	}
	offers, host := machine.Host(rt, nil)
	srv, err := server.New(ctx, &server.Options{
		Stores:  server.Stores{Pods: memory.NewPods(), Endpoints: memory.NewEndpoints(), Jobs: memory.NewJobs()},
		Catalog: offers, Hosts: []pods.Host{host}, Runtimes: []server.Closer{rt},
		Keys:   []httpapi.Key{{Secret: "secret", User: "me", Scopes: []string{"endpoint:greet:run"}}},
		Jobs:   serverless.Options{WorkerURL: func() string { return api }},
		Logger: slog.Default(),
	})
	if err != nil {
		return nil, errors.Join(err, rt.Close(ctx))
	}
	if _, err := srv.Services().Jobs.DeclareEndpoint(ctx, "greet", greeters()); err != nil {
		return nil, errors.Join(err, srv.Close(ctx))
	}
	return srv, nil
}

// greeters are an endpoint that no process serves as long as there are no jobs, and two at
// most. A process that no job needs for two seconds ends.
func greeters() endpoints.CreateRequest {
	most, idle := 2, 2*time.Second
	name, image := "greet", "greeter"
	return endpoints.CreateRequest{
		Type: endpoints.QueueType,
		Settings: endpoints.Settings{
			Name: &name, Image: &image, Env: map[string]string{"GREETING": "hello"},
			CPU:     []endpoints.CPUSettings{{ID: catalog.HostFlavor, VCPU: 2}},
			Workers: endpoints.WorkerSettings{Max: &most, Idle: &idle},
			Scaling: &endpoints.Scaling{Type: endpoints.QueueDelay, Delay: time.Second},
		},
	}
}

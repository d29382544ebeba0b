package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/podyard/podyard/httpapi/client"
	"github.com/podyard/podyard/httpapi/double"
	"github.com/podyard/podyard/serverless"
)

// connect returns a client of a server in this process, which ends with ctx. The server has
// three endpoints: captions, counter, which streams, and broken, whose jobs fail.
func connect(ctx context.Context) (*client.Client, *double.Server) {
	s, err := double.New(nil)
	check(err)
	go func() { check(s.Run(ctx)) }()
	<-s.Ready()
	check(s.Handle(ctx, "captions", serverless.JSON(func(_ context.Context, in struct{ Image string }) (map[string]string, error) {
		return map[string]string{"text": "what " + in.Image + " shows"}, nil
	})))
	for _, id := range []string{"counter", "broken"} {
		script, err := s.Endpoint(ctx, id)
		check(err)
		if id == "counter" {
			script.Stream(1, 2, 3)
		} else {
			script.Fail("out of memory")
		}
	}
	c, err := client.New(&client.Options{URL: "http://podyard.test", Key: client.Secret(s.Key()), HTTP: s.Client()})
	check(err)
	return c, s
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A client of a server, and one of the hosted service, whose parts have their own addresses.
func ExampleNew() {
	c, err := client.New(&client.Options{URL: "https://pods.example.com", Key: "py_...", Additions: true})
	fmt.Println(c != nil, err)
	c, err = client.New(&client.Options{URL: "https://api.example.com", JobsURL: "https://jobs.example.com", LegacyURL: "https://rest.example.com", Key: "..."})
	fmt.Println(c != nil, err)
	_, err = client.New(&client.Options{URL: "pods.example.com"})
	fmt.Println(err)
	// Output:
	// true <nil>
	// true <nil>
	// client: URL must be an absolute http or https URL
}

// A job as a function call.
func ExampleRun() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, _ := connect(ctx)

	type image struct{ Image string }
	type caption struct{ Text string }
	out, err := client.Run[image, caption](ctx, c.Jobs("captions"), image{"cat.png"})
	fmt.Println(out.Text, err)
	// Output: what cat.png shows <nil>
}

// A job that fails is a JobError.
func ExampleJobError() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, _ := connect(ctx)

	_, err := client.Run[struct{}, string](ctx, c.Jobs("broken"), struct{}{})
	var failed *client.JobError
	if errors.As(err, &failed) {
		fmt.Println(failed.Job.Status, failed.Job.Error)
	}
	// Output: FAILED out of memory
}

// A job that is submitted now and waited for later.
func ExampleJobs_Submit() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, _ := connect(ctx)
	jobs := c.Jobs("captions")

	job, err := jobs.Submit(ctx, client.JobRequest{
		Input:  map[string]string{"image": "dog.png"},
		Policy: &client.JobPolicy{TTL: client.Millis(time.Hour)},
	})
	check(err)
	fmt.Println(job.Status)
	job, err = jobs.Wait(ctx, job.ID)
	fmt.Println(job.Status, string(job.Output), err)
	// Output:
	// IN_QUEUE
	// COMPLETED {"text":"what dog.png shows"} <nil>
}

func ExampleJobs_Stream() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, s := connect(ctx)
	jobs := c.Jobs("counter")

	job, err := jobs.Submit(ctx, client.JobRequest{})
	check(err)
	check(s.Advance(ctx, time.Second)) // the clock of this server stands still
	for chunk, err := range jobs.Stream(ctx, job.ID) {
		check(err)
		fmt.Println(string(chunk.Output))
	}
	// Output:
	// 1
	// 2
	// 3
}

func ExampleJobs_List() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, s := connect(ctx)
	jobs := c.Jobs("broken")

	_, err := jobs.Submit(ctx, client.JobRequest{})
	check(err)
	check(s.Advance(ctx, time.Second))
	for job, err := range jobs.List(ctx, client.JobsQuery{Status: []client.JobStatus{client.Failed}}) {
		check(err)
		fmt.Println(job.Error)
	}
	// Output: out of memory
}

func ExamplePods_Create() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, s := connect(ctx)

	pod, err := c.Pods.Create(ctx, client.PodSettings{
		Name: "web", Image: "nginx", CPU: &client.CPU{ID: "cpu3c", VCPU: 2}, Ports: []string{"80/http"},
	})
	check(err)
	fmt.Println(pod.Status)
	check(s.Advance(ctx, time.Minute))
	pod, err = c.Pods.Await(ctx, pod.ID, "RUNNING")
	check(err)
	fmt.Println(pod.Status, pod.Runtime.Ports[0].Private)
	check(c.Pods.Terminate(ctx, pod.ID))
	// Output:
	// PROVISIONING
	// RUNNING 80
}

func ExamplePods_Logs() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, s := connect(ctx)

	pod, err := c.Pods.Create(ctx, client.PodSettings{Name: "web", Image: "nginx", CPU: &client.CPU{ID: "cpu3c", VCPU: 2}})
	check(err)
	check(s.Advance(ctx, time.Minute))
	for line, err := range c.Pods.Logs(ctx, pod.ID, &client.LogOptions{Source: "container"}) {
		check(err)
		fmt.Println(line.Text)
		break // it would follow the log
	}
	// Output: ready
}

func ExampleCatalog_GPUs() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, _ := connect(ctx)

	gpus, err := c.Catalog.GPUs(ctx, client.StockQuery{Product: "POD", Count: 8})
	check(err)
	for _, g := range gpus {
		if g.Availability == "HIGH" && g.Memory >= 80 {
			fmt.Println(g.ID, g.Memory, "GB")
			break
		}
	}
	// Output: NVIDIA A100 80GB PCIe 80 GB
}

// An answer that is an error has its status and its texts.
func ExampleError() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, _ := connect(ctx)

	_, err := c.Pods.Get(ctx, "nothere")
	fmt.Println(client.StatusOf(err) == http.StatusNotFound, err)
	_, err = c.Volumes.Create(ctx, client.Volume{Name: "data", Size: 1, DataCenter: "MARS-1"})
	var e *client.Error
	if errors.As(err, &e) {
		for _, text := range e.Errors {
			fmt.Println(text)
		}
	}
	// Output:
	// true client: GET /v2/pods/nothere: 404 Not Found: pod not found
	// /size: must be 10 to 4096 GB
	// /dataCenter: unknown data center "MARS-1"
}

// An operator sees the records of all users with their owners.
func ExampleClient_As() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, _ := connect(ctx)

	_, err := c.Account.CreateKey(ctx, client.KeySettings{User: "bob", Scopes: []string{"pods:read"}})
	check(err)
	for key, err := range c.As("*").Account.Keys(ctx) {
		check(err)
		fmt.Println(key.Owner, key.Scopes)
	}
	// Output: bob [pods:read]
}

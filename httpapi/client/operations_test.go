package client_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/apitest"
	"github.com/podyard/podyard/httpapi/client"
)

// A world is a server with records of all kinds, and a client.
type world struct {
	*apitest.Server
	*client.Client
	pod, registry, secret, endpoint, volume, template, key string
	queued, done, failed, streamed, hooked                 string
	schedule, batch, cluster                               string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := apitest.Start(t)
	s.Queue("q")
	s.Endpoint("echo").Reply(map[string]any{"text": "a cat"})
	s.Endpoint("script").When(map[string]any{"to": "fail"}).Fail("no").Fail("no").When(map[string]any{"to": "stream"}).Stream("a", "b").Stream(map[string]any{"choices": []any{}})
	w := &world{Server: s, Client: newClient(t, s, nil)}
	ctx := t.Context()
	w.registry = must(w.Registries.Create(ctx, "r", "u", "p"))(t).ID
	w.secret = must(w.Account.CreateSecret(ctx, "s", "v", ""))(t).ID
	w.volume = must(w.Volumes.Create(ctx, client.Volume{Name: "v", Size: 10, DataCenter: "US-KS-2"}))(t).ID
	w.template = must(w.Templates.Create(ctx, client.TemplateSettings{Name: new("t"), Image: new("i"), Category: "CPU"}))(t).ID
	w.key = must(w.Account.CreateKey(ctx, client.KeySettings{Scopes: []string{"*"}}))(t).ID
	w.endpoint = must(w.Endpoints.Create(ctx, newEndpoint))(t).ID
	w.cluster = must(w.Client.Clusters.Create(ctx, newCluster))(t).ID
	w.pod = must(w.Client.Pods.Create(ctx, newPod))(t).ID
	w.batch = must(w.Client.Jobs("q").CreateBatch(ctx, client.Batch{}, false, client.JobRequest{}))(t).ID
	w.schedule = must(w.Client.Jobs("q").Schedules().Create(ctx, client.ScheduleSettings{Cron: "0 * * * *", Run: &client.JobRequest{}}))(t).ID
	submit := func(endpoint string, r client.JobRequest) string {
		t.Helper()
		return must(w.Client.Jobs(endpoint).Submit(ctx, r))(t).ID
	}
	w.queued = submit("q", client.JobRequest{})
	w.done = submit("echo", client.JobRequest{})
	w.failed = submit("script", client.JobRequest{Input: map[string]string{"to": "fail"}, Queue: &client.JobQueue{Retry: &client.JobRetry{Attempts: 2, Delay: client.Millis(time.Millisecond)}}})
	w.streamed = submit("script", client.JobRequest{Input: map[string]string{"to": "stream"}})
	w.hooked = submit("echo", client.JobRequest{Webhook: "http://client.test/"})
	s.Advance(time.Second)
	return w
}

var (
	newPod      = client.PodSettings{Name: "web", Image: "i", CPU: &client.CPU{ID: "cpu3c", VCPU: 2}, Ports: []string{"8000/http"}, Env: map[string]string{"A": "b"}}
	newCluster  = client.ClusterSettings{Name: "train", Type: "TRAINING", Image: "i", Compute: client.ClusterCompute{GPU: "NVIDIA GeForce RTX 4090", GPUsPerPod: 1, Pods: 2}}
	newEndpoint = client.EndpointSettings{
		Name: new("e"), Type: "QUEUE", Image: new("i"), CPU: []client.CPU{{ID: "cpu3c", VCPU: 2}}, Scaling: &client.Scaling{Type: "QUEUE_DELAY", QueueDelay: 4},
	}
)

func newClient(t *testing.T, s *apitest.Server, set func(*client.Options)) *client.Client {
	t.Helper()
	o := &client.Options{URL: s.URL(), Key: client.Secret(s.Key)}
	if set != nil {
		set(o)
	}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// must returns v, and ends the test if there is an error.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// is returns an error unless what a method has returned is what the test wants.
func is[T any](want func(T) bool, v T, err error) error {
	if err == nil && !want(v) {
		return errors.New("the answer is not what the method promises")
	}
	return err
}

// has returns an error unless a list has an item that want accepts.
func has[T any](want func(T) bool, list []T, err error) error {
	if err == nil && !slices.ContainsFunc(list, want) {
		return errors.New("the list does not have the record")
	}
	return err
}

// first returns the first item of an iterator.
func first[T any](seq iter.Seq2[T, error]) (v T, err error) {
	for v, err := range seq {
		return v, err
	}
	return v, io.EOF
}

// A method is a call of one or more methods of a Client for an operation.
type method func(ctx context.Context, w *world) error

// methods has the calls for the operations of the table.
var methods = map[string]method{
	"openapi": func(ctx context.Context, w *world) error {
		doc, err := w.OpenAPI(ctx)
		return is(func(s string) bool { return strings.Contains(s, `"openapi":"3.1.0"`) }, string(doc), err)
	},
	"listClusters": func(ctx context.Context, w *world) error {
		list, err := w.Client.Clusters.List(ctx)
		return has(func(v client.Cluster) bool { return v.ID == w.cluster && v.Compute == newCluster.Compute }, list, err)
	},
	"createCluster": func(ctx context.Context, w *world) error {
		v, err := w.Client.Clusters.Create(ctx, newCluster)
		return is(func(v client.Cluster) bool { return v.Pods.Total == 2 && v.Primary.Status == "PROVISIONING" }, v, err)
	},
	"getCluster": func(ctx context.Context, w *world) error {
		v, err := w.Client.Clusters.Get(ctx, w.cluster)
		return is(func(v client.Cluster) bool {
			return v.Pods.ByStatus["RUNNING"] == 2 && v.Primary.PodID != "" && v.DataCenterID != ""
		}, v, err)
	},
	"updateCluster": func(ctx context.Context, w *world) error {
		v, err := w.Client.Clusters.Rename(ctx, w.cluster, "other")
		return is(func(v client.Cluster) bool { return v.Name == "other" }, v, err)
	},
	"deleteCluster": func(ctx context.Context, w *world) error { return w.Client.Clusters.Delete(ctx, w.cluster) },
	"listClusterPods": func(ctx context.Context, w *world) error {
		list, err := w.Client.Clusters.Pods(ctx, w.cluster)
		return has(func(p client.Pod) bool { return p.Cluster.ID == w.cluster && p.Cluster.Rank == 1 && p.Cluster.IP != "" }, list, err)
	},
	"listClusterBilling": func(ctx context.Context, w *world) error {
		w.Advance(time.Hour)
		bill, err := w.Client.Billing.Clusters(ctx, client.BillingQuery{ID: w.cluster})
		return is(func(b client.Bill) bool {
			return len(b.Records) > 0 && b.Records[0].ID == w.cluster && b.Totals["gpuAmount"] > 0
		}, bill, err)
	},
	"listPods": func(ctx context.Context, w *world) error {
		list, err := w.Client.Pods.List(ctx)
		return has(func(p client.Pod) bool { return p.ID == w.pod && p.Env["A"] == "b" }, list, err)
	},
	"createPod": func(ctx context.Context, w *world) error {
		p, err := w.Client.Pods.Create(ctx, newPod)
		return is(func(p client.Pod) bool { return p.Status == "PROVISIONING" && p.CPU.VCPU == 2 }, p, err)
	},
	"getPod": func(ctx context.Context, w *world) error {
		p, err := w.Client.Pods.Get(ctx, w.pod)
		return is(func(p client.Pod) bool { return p.Status == "RUNNING" && p.Runtime != nil && !p.CreatedAt.IsZero() }, p, err)
	},
	"updatePod": func(ctx context.Context, w *world) error {
		p, err := w.Client.Pods.Update(ctx, w.pod, client.PodUpdate{Name: new("other"), Registry: &w.registry, Ports: []string{}})
		return is(func(p client.Pod) bool { return p.Name == "other" }, p, err)
	},
	"deletePod": func(ctx context.Context, w *world) error { return w.Client.Pods.Terminate(ctx, w.pod) },
	"podAction": func(ctx context.Context, w *world) error {
		_, err := w.Client.Pods.Stop(ctx, w.pod)
		return err
	},
	"getPodOptions": func(ctx context.Context, w *world) error {
		if _, err := w.Client.Pods.Update(ctx, w.pod, client.PodUpdate{Options: &client.PodOptions{
			StopGrace: new(int64(30000)), Restart: "always", Idle: &client.PodIdle{For: 3_600_000}, User: new("1000"),
		}}); err != nil {
			return err
		}
		if _, err := w.Client.Pods.Update(ctx, w.pod, client.PodUpdate{Options: &client.PodOptions{Defaults: []string{"user"}}}); err != nil {
			return err
		}
		o, err := w.Client.Pods.Options(ctx, w.pod)
		return is(func(o client.PodOptions) bool {
			return *o.StopGrace == 30000 && o.Restart == "always" && o.Idle.For == 3_600_000 && *o.Idle.GPU == 5 && o.User == nil && *o.MaxRestarts == 5 && o.StopAfter == nil
		}, o, err)
	},
	"whyPod": func(ctx context.Context, w *world) error {
		p, err := w.Client.Pods.Why(ctx, w.pod)
		return is(func(p client.Pod) bool {
			return p.ID == w.pod && p.Why.Status == "RUNNING" && p.Why.Why == "" && p.Why.Since == nil
		}, p, err)
	},
	"getPodLogs": func(ctx context.Context, w *world) error {
		l, err := first(w.Client.Pods.Logs(ctx, w.pod, &client.LogOptions{Source: "system", Tail: new(10)}))
		return is(func(l client.LogLine) bool {
			return l.Source == "system" && l.Text != "" && l.ID != "" && !l.Time.IsZero()
		}, l, err)
	},
	"execPod": func(ctx context.Context, w *world) error {
		r, err := w.Client.Pods.Exec(ctx, w.pod, client.PodCommand{Command: []string{"cat"}, Stdin: "hello", Timeout: time.Minute})
		return is(func(r client.PodCommandResult) bool { return r == client.PodCommandResult{Stdout: "hello"} }, r, err)
	},
	"podTerminal": func(ctx context.Context, w *world) error {
		code, err := w.Client.Pods.Terminal(ctx, w.pod, client.PodTerminal{Command: []string{"false"}, Size: client.TerminalSize{Columns: 100, Rows: 30}, Stdout: io.Discard})
		if err := is(func(code int) bool { return code == 1 }, code, err); err != nil {
			return err
		}
		ctx, leave := context.WithCancel(ctx)
		defer leave()
		_, err = w.Client.Pods.Terminal(ctx, w.pod, client.PodTerminal{Command: []string{"cat"}, Stdin: strings.NewReader("hello"), Stdout: &awaited{text: "hello", then: leave}})
		return is(func(err error) bool { return errors.Is(err, context.Canceled) }, err, nil)
	},
	"getPodFiles": func(ctx context.Context, w *world) error {
		f, err := w.Client.Pods.ReadFiles(ctx, w.pod, "/a")
		if err == nil {
			return errors.Join(errors.New("there are files in a simulation"), f.Close())
		}
		return is(func(status int) bool { return status == http.StatusNotImplemented }, client.StatusOf(err), nil)
	},
	"putPodFiles": func(ctx context.Context, w *world) error {
		err := w.Client.Pods.WriteFiles(ctx, w.pod, "/a", strings.NewReader(""))
		return is(func(status int) bool { return status == http.StatusNotImplemented }, client.StatusOf(err), nil)
	},
	"resetPod": func(ctx context.Context, w *world) error {
		p, err := w.Client.Pods.Reset(ctx, w.pod)
		return is(func(p client.Pod) bool { return p.ID == w.pod }, p, err)
	},
	"listNetworkVolumes": func(ctx context.Context, w *world) error {
		list, err := w.Client.Volumes.List(ctx)
		return has(func(v client.Volume) bool { return v.ID == w.volume }, list, err)
	},
	"createNetworkVolume": func(ctx context.Context, w *world) error {
		v, err := w.Client.Volumes.Create(ctx, client.Volume{Name: "w", Size: 10, DataCenter: "US-KS-2"})
		return is(func(v client.Volume) bool { return v.Size == 10 }, v, err)
	},
	"getNetworkVolume": func(ctx context.Context, w *world) error {
		v, err := w.Client.Volumes.Get(ctx, w.volume)
		return is(func(v client.Volume) bool { return v.DataCenter == "US-KS-2" }, v, err)
	},
	"updateNetworkVolume": func(ctx context.Context, w *world) error {
		v, err := w.Client.Volumes.Update(ctx, w.volume, client.Volume{Size: 11})
		return is(func(v client.Volume) bool { return v.Size == 11 && v.Name == "v" }, v, err)
	},
	"deleteNetworkVolume": func(ctx context.Context, w *world) error { return w.Client.Volumes.Delete(ctx, w.volume) },
	"listTemplates": func(ctx context.Context, w *world) error {
		list, err := w.Client.Templates.List(ctx)
		return has(func(t client.Template) bool { return t.ID == w.template }, list, err)
	},
	"createTemplate": func(ctx context.Context, w *world) error {
		t, err := w.Client.Templates.Create(ctx, client.TemplateSettings{Name: new("u"), Image: new("i"), Env: map[string]string{"A": "b"}, Registry: &w.registry})
		return is(func(t client.Template) bool { return t.Env["A"] == "b" && t.Registry == w.registry }, t, err)
	},
	"getTemplate": func(ctx context.Context, w *world) error {
		t, err := w.Client.Templates.Get(ctx, w.template)
		return is(func(t client.Template) bool { return t.Category == "CPU" }, t, err)
	},
	"updateTemplate": func(ctx context.Context, w *world) error {
		t, err := w.Client.Templates.Update(ctx, w.template, client.TemplateSettings{Name: new("u"), Registry: new("")})
		return is(func(t client.Template) bool { return t.Name == "u" && t.Image == "i" && t.Registry == "" }, t, err)
	},
	"deleteTemplate": func(ctx context.Context, w *world) error { return w.Client.Templates.Delete(ctx, w.template) },
	"listPublicTemplates": func(ctx context.Context, w *world) error {
		_, err := w.Client.Templates.Public(ctx, "community")
		return err
	},
	"getSshKeys": func(ctx context.Context, w *world) error {
		_, err := w.Client.Account.SSHKeys(ctx)
		return err
	},
	"updateSshKeys": func(ctx context.Context, w *world) error {
		keys, err := w.Client.Account.SetSSHKeys(ctx, []string{"ssh-ed25519 AAAA me"})
		return is(func(k []string) bool { return len(k) == 1 }, keys, err)
	},
	"listRegistries": func(ctx context.Context, w *world) error {
		list, err := w.Client.Registries.List(ctx)
		return has(func(r client.Registry) bool { return r.ID == w.registry }, list, err)
	},
	"createRegistry": func(ctx context.Context, w *world) error {
		r, err := w.Client.Registries.Create(ctx, "s", "u", "p")
		return is(func(r client.Registry) bool { return r.Name == "s" }, r, err)
	},
	"getRegistry": func(ctx context.Context, w *world) error {
		r, err := w.Client.Registries.Get(ctx, w.registry)
		return is(func(r client.Registry) bool { return r.Name == "r" }, r, err)
	},
	"deleteRegistry": func(ctx context.Context, w *world) error { return w.Client.Registries.Delete(ctx, w.registry) },
}

// Every operation of the table has a call here, which makes a request to it. The worker
// protocol is in package worker. Requests to load-balancing endpoints are plain HTTP.
// An awaited calls a function once a text was written to it.
type awaited struct {
	text, got string
	then      func()
}

// Write implements io.Writer.
func (a *awaited) Write(b []byte) (int, error) {
	if a.got += string(b); strings.Contains(a.got, a.text) {
		a.then()
	}
	return len(b), nil
}

func TestEveryOperationHasAMethod(t *testing.T) {
	all := map[string]method{}
	for _, part := range []map[string]method{methods, accountMethods, endpointMethods, jobMethods, addedMethods, batchMethods} {
		maps.Copy(all, part)
	}
	for _, o := range httpapi.Operations() {
		if o.API == httpapi.APIWorkers || o.API == httpapi.APIBalance || o.NotOffered != "" {
			continue
		}
		t.Run(o.Name, func(t *testing.T) {
			t.Parallel()
			call := all[o.Name]
			if call == nil {
				t.Fatalf("no method of the client was called for %s", o.Name)
			}
			w := newWorld(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := call(ctx, w); err != nil {
				t.Errorf("%s: %v", o.Name, err)
			}
			w.RequireRequest(t, apitest.RequestMatch{Operation: o.Name})
		})
	}
}

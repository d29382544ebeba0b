package client_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi/client"
)

var accountMethods = map[string]method{
	"listKeys": func(ctx context.Context, w *world) error {
		k, err := first(w.Client.Account.Keys(ctx))
		return is(func(k client.Key) bool { return k.ID == w.key && k.Secret == "" }, k, err)
	},
	"createKey": func(ctx context.Context, w *world) error {
		end := w.Now().Add(time.Hour)
		k, err := w.Client.Account.CreateKey(ctx, client.KeySettings{Scopes: []string{"pods:read"}, Expires: &end})
		return is(func(k client.Key) bool { return k.Secret != "" && k.Expires != nil }, k, err)
	},
	"getKey": func(ctx context.Context, w *world) error {
		k, err := w.Client.Account.Key(ctx, w.key)
		return is(func(k client.Key) bool { return k.User == "tester" && k.Expires == nil }, k, err)
	},
	"updateKey": func(ctx context.Context, w *world) error {
		k, err := w.Client.Account.UpdateKey(ctx, w.key, client.KeySettings{Scopes: []string{"pods:read"}, Expires: new(time.Time)})
		return is(func(k client.Key) bool { return len(k.Scopes) == 1 && k.Scopes[0] == "pods:read" }, k, err)
	},
	"deleteKey": func(ctx context.Context, w *world) error { return w.Client.Account.DeleteKey(ctx, w.key) },
	"rotateKey": func(ctx context.Context, w *world) error {
		k, err := w.Client.Account.RotateKey(ctx, w.key, time.Minute)
		return is(func(k client.Key) bool { return k.Secret != "" && k.OverlapUntil != nil }, k, err)
	},
	"listSecrets": func(ctx context.Context, w *world) error {
		list, err := w.Client.Account.Secrets(ctx, "S")
		return has(func(s client.NamedSecret) bool { return s.ID == w.secret && s.Name == "s" && s.ValueSet != nil }, list, err)
	},
	"createSecret": func(ctx context.Context, w *world) error {
		s, err := w.Client.Account.CreateSecret(ctx, "other", "v", "note")
		return is(func(s client.NamedSecret) bool { return s.Name == "other" && s.Description == "note" }, s, err)
	},
	"getSecret": func(ctx context.Context, w *world) error {
		s, err := w.Client.Account.Secret(ctx, w.secret)
		return is(func(s client.NamedSecret) bool { return s.Name == "s" }, s, err)
	},
	"updateSecret": func(ctx context.Context, w *world) error {
		s, err := w.Client.Account.UpdateSecret(ctx, w.secret, client.SecretSettings{Value: new(client.Secret("w")), Description: new("d")})
		return is(func(s client.NamedSecret) bool { return s.Description == "d" }, s, err)
	},
	"deleteSecret": func(ctx context.Context, w *world) error { return w.Client.Account.DeleteSecret(ctx, w.secret) },
	"listLimits": func(ctx context.Context, w *world) error {
		windows, err := w.Client.Account.Windows(ctx)
		if err := is(func(l map[string][]client.Limit) bool {
			return len(l["tester"]) == 3 && l["tester"][0].Name == "minute" && *l["tester"][0].Limit > 0 && l["tester"][0].Resets > 0
		}, windows, err); err != nil {
			return err
		}
		all, err := w.Client.Account.Limits(ctx)
		return is(func(l map[string][]client.Limit) bool { return len(l["tester"]) > 0 && l["tester"][0].Name == "jobs" }, all, err)
	},
	"listBilling": func(ctx context.Context, w *world) error {
		b, err := w.Client.Billing.All(ctx, client.BillingQuery{BucketSize: "hour", LastN: 2})
		return is(func(b client.Bill) bool { _, ok := b.Totals["totalAmount"]; return ok }, b, err)
	},
	"listPodBilling": func(ctx context.Context, w *world) error {
		b, err := w.Client.Billing.Pods(ctx, client.BillingQuery{ID: w.pod, Start: w.Now().Add(-time.Hour), End: w.Now().Add(time.Hour)})
		return is(func(b client.Bill) bool {
			return len(b.Records) == 1 && b.Records[0].ID == w.pod && !b.Records[0].End.IsZero()
		}, b, err)
	},
	"listEndpointBilling": func(ctx context.Context, w *world) error {
		b, err := w.Client.Billing.PublicEndpoints(ctx, client.BillingQuery{BucketSize: "hour", LastN: 2})
		return is(func(b client.Bill) bool { _, ok := b.Totals["totalAmount"]; return ok && len(b.Records) == 0 }, b, err)
	},
	"listServerlessBilling": func(ctx context.Context, w *world) error {
		_, err := w.Client.Billing.Endpoints(ctx, client.BillingQuery{ID: w.endpoint})
		return err
	},
	"listNetworkVolumeBilling": func(ctx context.Context, w *world) error {
		_, err := w.Client.Billing.Volumes(ctx, client.BillingQuery{})
		return err
	},
	"listGpuTypes": func(ctx context.Context, w *world) error {
		list, err := w.Client.Catalog.GPUs(ctx, client.StockQuery{Product: "POD", Count: 1, Cloud: "SECURE"})
		return has(func(g client.GPUType) bool {
			return g.Memory == 24 && g.Price.Secure > 0 && g.Availability != "" && len(g.DataCenters) > 0
		}, list, err)
	},
	"getGpuType": func(ctx context.Context, w *world) error {
		g, err := w.Client.Catalog.GPU(ctx, "NVIDIA GeForce RTX 4090", client.StockQuery{})
		return is(func(g client.GPUType) bool { return g.Memory == 24 && g.MaxCount.Secure > 0 }, g, err)
	},
	"listCpuTypes": func(ctx context.Context, w *world) error {
		list, err := w.Client.Catalog.CPUs(ctx, client.StockQuery{Product: "POD", VCPU: 4})
		return has(func(f client.CPUType) bool { return f.ID == "cpu3c" && f.RAMPerVCPU > 0 && f.VCPU.Max > 0 }, list, err)
	},
	"getCpuType": func(ctx context.Context, w *world) error {
		f, err := w.Client.Catalog.CPU(ctx, "cpu3c", client.StockQuery{})
		return is(func(f client.CPUType) bool { return f.Price.SecurePerVCPU > 0 }, f, err)
	},
	"listDataCenters": func(ctx context.Context, w *world) error {
		list, err := w.Client.Catalog.DataCenters(ctx, client.DataCenterQuery{Include: []string{"GPU_AVAILABILITY"}, GlobalNetwork: new(true), NetworkVolumeTypes: []string{"STANDARD"}})
		return has(func(d client.DataCenter) bool { return d.ID == "US-KS-2" && len(d.GPUAvailability) > 0 }, list, err)
	},
	"getDataCenter": func(ctx context.Context, w *world) error {
		d, err := w.Client.Catalog.DataCenter(ctx, "US-KS-2", "CPU_AVAILABILITY")
		return is(func(d client.DataCenter) bool { return d.Region != "" && len(d.CPUAvailability) > 0 }, d, err)
	},
	"listAudit": func(ctx context.Context, w *world) error {
		list, err := w.Client.Admin.Audit(ctx, client.AuditQuery{Operation: "createPod", User: "tester", Kind: "change", Limit: 5, Before: w.Now().Add(time.Hour), Since: w.Now().Add(-24 * time.Hour)})
		return has(func(r client.AuditRecord) bool { return r.Record == w.pod && r.Status == 201 }, list, err)
	},
	"reload": func(ctx context.Context, w *world) error {
		_, _, err := w.Client.Admin.Reload(ctx)
		if client.StatusOf(err) == http.StatusNotImplemented { // the double has no configuration
			return nil
		}
		return err
	},
	"cordon": func(ctx context.Context, w *world) error {
		state, err := w.Client.Admin.Cordon(ctx, client.Target{Endpoint: w.endpoint})
		return is(func(s string) bool { return s == "cordoned" }, state, err)
	},
	"uncordon": func(ctx context.Context, w *world) error {
		state, err := w.Client.Admin.Uncordon(ctx, client.Target{Server: "server"})
		return is(func(s string) bool { return s == "active" }, state, err)
	},
	"drain": func(ctx context.Context, w *world) error {
		state, err := w.Client.Admin.Drain(ctx, client.Target{Host: "us-tx-3-secure", StopPods: true})
		return is(func(s string) bool { return s == "cordoned" }, state, err)
	},
	"adminState": func(ctx context.Context, w *world) error {
		s, err := w.Client.Admin.StateWithClaims(ctx)
		return is(func(s client.State) bool {
			return s.Server.Ready && len(s.Hosts) > 0 && len(s.Endpoints) > 2 && len(s.Users) == 1 && s.Users[0].Pods == 3
		}, s, err)
	},
	"deleteUserJobs": func(ctx context.Context, w *world) error {
		n, err := w.Client.Admin.EraseJobs(ctx, "nobody")
		return is(func(n int) bool { return n == 0 }, n, err)
	},
	"deleteUser": func(ctx context.Context, w *world) error {
		if _, err := w.Client.Account.CreateKey(ctx, client.KeySettings{User: "bob", Scopes: []string{"*"}}); err != nil {
			return err
		}
		e, err := w.Client.Admin.EraseUser(ctx, "bob")
		return is(func(e map[string]int) bool { return e["keys"] == 1 && e["waiting"] == 0 }, e, err)
	},
}

var endpointMethods = map[string]method{
	"listEndpoints": func(ctx context.Context, w *world) error {
		list, err := w.Client.Endpoints.List(ctx)
		return has(func(e client.Endpoint) bool {
			return e.ID == w.endpoint && strings.HasSuffix(e.RequestURLs["run"], "/run")
		}, list, err)
	},
	"createEndpoint": func(ctx context.Context, w *world) error {
		e, err := w.Client.Endpoints.Create(ctx, newEndpoint)
		return is(func(e client.Endpoint) bool {
			return e.Scaling.QueueDelay == 4 && e.Timeout.Duration() == 5*time.Minute && *e.Workers.Max == 3
		}, e, err)
	},
	"getEndpoint": func(ctx context.Context, w *world) error {
		e, err := w.Client.Endpoints.Get(ctx, w.endpoint)
		return is(func(e client.Endpoint) bool { return e.CPU[0].VCPU == 2 }, e, err)
	},
	"updateEndpoint": func(ctx context.Context, w *world) error {
		e, err := w.Client.Endpoints.Update(ctx, w.endpoint, client.EndpointSettings{Workers: &client.WorkerLimits{Min: new(0), Max: new(1)}, Timeout: client.Millis(time.Minute)})
		return is(func(e client.Endpoint) bool { return *e.Workers.Max == 1 && e.Timeout.Duration() == time.Minute }, e, err)
	},
	"deleteEndpoint": func(ctx context.Context, w *world) error { return w.Client.Endpoints.Delete(ctx, w.endpoint) },
	"listEndpointReleases": func(ctx context.Context, w *world) error {
		list, err := w.Client.Endpoints.Releases(ctx, w.endpoint)
		return has(func(r client.Release) bool { return r.Version == 1 && !r.CreatedAt.IsZero() }, list, err)
	},
	"listEndpointWorkers": func(ctx context.Context, w *world) error {
		_, err := w.Client.Endpoints.Workers(ctx, w.endpoint)
		return err
	},
	"getWorkerLogs": func(ctx context.Context, w *world) error {
		_, err := first(w.Client.Endpoints.WorkerLogs(ctx, w.endpoint, "none", nil))
		if client.StatusOf(err) == http.StatusNotFound {
			return nil
		}
		return err
	},
	"listEndpointBuilds": func(ctx context.Context, w *world) error {
		for _, err := range w.Client.Endpoints.Builds(ctx, w.endpoint) {
			return fmt.Errorf("there is a build: %w", err)
		}
		return nil
	},
	"getEndpointBuild": func(ctx context.Context, w *world) error {
		_, err := w.Client.Endpoints.Build(ctx, w.endpoint, "none")
		return notFound(err)
	},
	"listGlobalVolumes": func(ctx context.Context, w *world) error {
		for _, err := range w.Client.Volumes.Globals(ctx) {
			return fmt.Errorf("there is a global volume: %w", err)
		}
		return nil
	},
	"stopWorker": func(ctx context.Context, w *world) error {
		return notFound(w.Client.Endpoints.StopWorker(ctx, w.endpoint, "none"))
	},
	"listEndpointJobs": func(ctx context.Context, w *world) error {
		j, err := first(w.Client.Endpoints.Jobs(ctx, "q", client.InQueue))
		return is(func(j client.EndpointJob) bool { return j.ID == w.queued }, j, err)
	},
	"getEndpointQueue": func(ctx context.Context, w *world) error {
		q, err := w.Client.Endpoints.Queue(ctx, w.endpoint)
		return is(func(q client.Queue) bool {
			return q.Ageing.Duration() == time.Minute && q.PerKey == nil && q.Retry == nil
		}, q, err)
	},
	"updateEndpointQueue": func(ctx context.Context, w *world) error {
		q, err := w.Client.Endpoints.UpdateQueue(ctx, w.endpoint, map[string]any{"perKey": 2, "total": nil, "retry": map[string]any{"attempts": 3}})
		return is(func(q client.Queue) bool { return *q.PerKey == 2 && q.Total == nil && q.Retry.Attempts == 3 }, q, err)
	},
	"listDecisions": func(ctx context.Context, w *world) error {
		if _, err := w.Client.Endpoints.Decisions(ctx, w.endpoint); err != nil {
			return err
		}
		why, err := w.Client.Endpoints.Why(ctx, "q", w.queued)
		return is(func(s string) bool { return s != "" }, why, err)
	},
	"listWebhooks": func(ctx context.Context, w *world) error {
		hook, err := first(w.Client.Endpoints.Webhooks(ctx, "echo", "delivered"))
		return is(func(h client.Webhook) bool {
			return h.Job == w.hooked && h.State == "delivered" && h.Attempts == 1 && h.Last.Status == 200 && !h.FinishedAt.IsZero()
		}, hook, err)
	},
	"listDeliveries": func(ctx context.Context, w *world) error {
		list, err := w.Client.Endpoints.Deliveries(ctx, "echo", w.hooked)
		return has(func(d client.Delivery) bool { return d.Status == 200 && d.Next == nil }, list, err)
	},
	"redeliver": func(ctx context.Context, w *world) error {
		id, err := w.Client.Endpoints.Redeliver(ctx, "echo", w.hooked)
		return is(func(s string) bool { return s != "" }, id, err)
	},
}

// notFound is no error if err is a 404.
func notFound(err error) error {
	if client.StatusOf(err) == http.StatusNotFound {
		return nil
	}
	return fmt.Errorf("%w, want a 404", err)
}

var jobMethods = map[string]method{
	"run": func(ctx context.Context, w *world) error {
		j, err := w.Client.Jobs("q").Submit(ctx, client.JobRequest{
			Policy: &client.JobPolicy{TTL: client.Millis(time.Hour), LowPriority: true}, Queue: &client.JobQueue{Priority: new(9), Key: "k"},
		})
		return is(func(j client.Job) bool { return j.ID != "" && j.Status == client.InQueue }, j, err)
	},
	"runSync": func(ctx context.Context, w *world) error {
		j, err := w.Client.Jobs("echo").RunSync(ctx, client.JobRequest{Wait: time.Second})
		return is(func(j client.Job) bool {
			return j.Status == client.Completed && strings.Contains(string(j.Output), "a cat")
		}, j, err)
	},
	"status": func(ctx context.Context, w *world) error {
		if _, err := w.Client.Jobs("echo").Extend(ctx, w.done, time.Hour); err != nil {
			return err
		}
		j, err := w.Client.Jobs("script").Get(ctx, w.failed)
		return is(func(j client.Job) bool { return j.Error == "no" && j.Err() != nil }, j, err)
	},
	"listAttempts": func(ctx context.Context, w *world) error {
		h, err := w.Client.Jobs("script").History(ctx, w.failed)
		return is(func(h client.JobHistory) bool {
			if len(h.Attempts) != 2 || len(h.Leases) != 1 || h.LeaseCount != 1 || h.FirstChunkAt != nil {
				return false
			}
			a, l := h.Attempts[1], h.Leases[0]
			return a.Number == 2 && a.Status == client.Failed && a.Error == "no" && a.Worker != "" && a.CompletedAt != nil && a.Delay == nil &&
				l.Attempt == 1 && l.Worker != "" && l.End == "failed" && !l.ReadyAt.IsZero() && l.FirstChunkAt == nil
		}, h, err)
	},
	"jobLog": func(ctx context.Context, w *world) error {
		l, err := w.Client.Jobs("script").Log(ctx, w.failed)
		return is(func(l client.JobLog) bool { return l.ID == w.failed && len(l.Lines) == 0 && l.Dropped == 0 }, l, err)
	},
	"listDeadLetters": func(ctx context.Context, w *world) error {
		list, err := w.Client.Jobs("script").DeadLetters(ctx)
		return is(func(l []client.Job) bool { return len(l) == 0 }, list, err)
	},
	"getDeadLetter": func(ctx context.Context, w *world) error {
		_, err := w.Client.Jobs("script").DeadLetter(ctx, w.failed)
		return notFound(err)
	},
	"redriveDeadLetter": func(ctx context.Context, w *world) error {
		_, err := w.Client.Jobs("script").Redrive(ctx, w.failed)
		return notFound(err)
	},
	"deleteDeadLetter": func(ctx context.Context, w *world) error {
		return notFound(w.Client.Jobs("script").DeleteDeadLetter(ctx, w.failed))
	},
	"statusSync": func(ctx context.Context, w *world) error {
		j, err := w.Client.Jobs("echo").Wait(ctx, w.done)
		return is(func(j client.Job) bool { return j.Status == client.Completed && j.WorkerID != "" }, j, err)
	},
	"stream": func(ctx context.Context, w *world) error {
		var all []string
		for c, err := range w.Client.Jobs("script").Stream(ctx, w.streamed) {
			if err != nil {
				return err
			}
			all = append(all, string(c.Output))
		}
		return is(func(s []string) bool { return strings.Join(s, "") == `"a""b"` }, all, nil)
	},
	"cancel": func(ctx context.Context, w *world) error {
		j, err := w.Client.Jobs("q").Cancel(ctx, w.queued)
		return is(func(j client.Job) bool { return j.Status == client.Cancelled }, j, err)
	},
	"retry": func(ctx context.Context, w *world) error {
		j, err := w.Client.Jobs("script").Retry(ctx, w.failed)
		return is(func(j client.Job) bool { return j.Status == client.InQueue }, j, err)
	},
	"purgeQueue": func(ctx context.Context, w *world) error {
		n, err := w.Client.Jobs("q").Purge(ctx)
		return is(func(n int) bool { return n == 2 }, n, err) // and that of a batch
	},
	"actions": func(ctx context.Context, w *world) error {
		r, err := w.Client.Jobs("q").Act(ctx, client.ActionCancel, &client.JobFilter{IDs: []string{w.queued}}, false)
		return is(func(r client.ActionResult) bool { return r.Matched == 1 && r.Done == 1 && len(r.Failed) == 0 }, r, err)
	},
	"health": func(ctx context.Context, w *world) error {
		h, err := w.Client.Jobs("q").Health(ctx)
		return is(func(h client.Health) bool { return h.Jobs.InQueue == 2 }, h, err)
	},
	"metrics": func(ctx context.Context, w *world) error {
		_, ready, err := w.Client.Jobs("echo").Metrics(ctx)
		return is(func(list []string) bool { return len(list) == 1 }, ready, err)
	},
	"requests": func(ctx context.Context, w *world) error {
		j, err := first(w.Client.Jobs("script").List(ctx, client.JobsQuery{Status: []client.JobStatus{client.Failed}, Full: true}))
		return is(func(j client.Job) bool { return j.ID == w.failed && strings.Contains(string(j.Input), "fail") }, j, err)
	},
	"openai": func(ctx context.Context, w *world) error {
		body, err := w.Client.Jobs("script").OpenAI(ctx, "/v1/chat/completions", map[string]any{"model": "m"})
		if err != nil {
			return err
		}
		defer body.Close()
		b, err := io.ReadAll(body)
		return is(func(s string) bool { return s == `{"choices":[]}` }, string(b), err)
	},
}

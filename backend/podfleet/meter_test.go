package podfleet_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
)

// A billingEnv is what successive processes share: stores and a host.
type billingEnv struct {
	*testing.T
	runtime   *memory.Runtime
	pods      pods.PodStore
	bills     billing.Store
	jobs      queue.JobQueue
	endpoints endpoints.Store
}

var prices = catalog.Catalog{
	GPUs:        []catalog.GPUType{{ID: "Large", Pool: "POOL", Price: catalog.GPUPrice{Secure: 100, Serverless: 1.5}}},
	CPUs:        []catalog.CPUFlavor{{ID: "cpu", VCPU: catalog.Range{Min: 1, Max: 8}, Price: catalog.CPUPrice{Secure: 100, Serverless: 0.25}}},
	DataCenters: []catalog.DataCenter{{ID: "EU"}},
	Storage:     catalog.StoragePrices{Disk: 73},
}

// open runs the services of one process until stop.
func (w *billingEnv) open() (bills *billing.Service, stop func()) {
	w.Helper()
	bills = billing.New(w.bills, nil)
	hosts := []pods.Host{{
		ID: "h", DataCenter: "EU", Runtime: w.runtime, VCPU: map[string]int{"cpu": 8},
		GPUs: []pods.HostGPUs{{Type: "Large", Count: 4}},
	}}
	fleet, err := podfleet.New(w.pods, prices, hosts, nil)
	if err != nil {
		w.Fatal(err)
	}
	s := serverless.New(w.jobs, w.endpoints, &serverless.Options{
		Fleet: fleet, Meter: podfleet.Meter(prices, bills),
		WorkerURL: func() string { return "http://podyard.test/v2" }, WorkerSecret: []byte("secret"),
	})
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	synctest.Wait()
	return bills, func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	}
}

// sums returns what an endpoint cost in each hour.
func (w *billingEnv) sums(bills *billing.Service, endpoint string) (list []billing.Amounts) {
	w.Helper()
	r, err := bills.Report(w.Context(), "alice", billing.Query{Kind: pods.WorkerUsage, ID: endpoint, Size: billing.Hour})
	if err != nil {
		w.Fatal(err)
	}
	for _, x := range r.Records {
		list = append(list, x.Amounts.Round())
	}
	return list
}

func (w *billingEnv) want(what string, bills *billing.Service, endpoint string, want ...billing.Amounts) {
	w.Helper()
	if diff := cmp.Diff(want, w.sums(bills, endpoint)); diff != "" {
		w.Errorf("%s, %s (-want +got):\n%s", endpoint, what, diff)
	}
}

func TestWorkersAreBilledAtServerlessPricesAcrossARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &billingEnv{t, memory.NewRuntime(nil), memory.NewPods(), memory.NewBilling(), memory.NewJobs(), memory.NewEndpoints()}
		endpoint := func(id, owner string, change func(*endpoints.Endpoint)) {
			e := &endpoints.Endpoint{
				ID: id, Owner: owner, Created: time.Now(), Version: 1, Container: endpoints.Container{Image: "img", Disk: 10},
				Workers: endpoints.WorkerLimits{Min: 1, Max: 1, Idle: time.Second},
				Scaling: endpoints.Scaling{Type: endpoints.QueueDelay, Delay: time.Second},
			}
			e.Container.Env = map[string]string{"RUNPOD_INIT_TIMEOUT": "86400"} // no worker asks for jobs in this test
			change(e)
			if err := w.endpoints.Create(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		endpoint("gpu", "alice", func(e *endpoints.Endpoint) { e.GPU = &endpoints.GPU{Pools: []string{"POOL"}, Count: 2} })
		cpu := []endpoints.CPU{{ID: "cpu", VCPU: 2}}
		endpoint("cpu", "alice", func(e *endpoints.Endpoint) { e.CPU = cpu })
		endpoint("shared", "", func(e *endpoints.Endpoint) { e.CPU = cpu })

		bills, stop := w.open()
		time.Sleep(90*time.Minute - time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)))
		gpu := func(hours float64) billing.Amounts { return billing.Amounts{GPU: 3 * hours, Disk: hours} }
		w.want("while it runs", bills, "gpu", gpu(1), gpu(0.5))
		w.want("while it runs", bills, "cpu", billing.Amounts{CPU: 0.5, Disk: 1}, billing.Amounts{CPU: 0.25, Disk: 0.5})
		w.want("which is nobody's", bills, "shared")
		stop()

		// One worker ends while no server runs; the other one continues.
		time.Sleep(30 * time.Minute)
		w.remove("cpu")
		time.Sleep(30 * time.Minute)
		bills, stop = w.open()
		defer stop()
		time.Sleep(30 * time.Minute)
		w.want("which went on meanwhile", bills, "gpu", gpu(1), gpu(1), gpu(1))
		w.want("without the hour in which nobody saw it", bills, "cpu",
			billing.Amounts{CPU: 0.5, Disk: 1}, billing.Amounts{CPU: 0.25, Disk: 0.5}, billing.Amounts{CPU: 0.25, Disk: 0.5})
	})
}

// remove removes the workers of an endpoint from their host.
func (w *billingEnv) remove(endpoint string) {
	w.Helper()
	list, err := w.runtime.List(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	for i := range list {
		if id := list[i].PodID; strings.HasPrefix(id, podfleet.PodID(endpoint, "")) {
			if err := w.runtime.Remove(w.Context(), id, 0); err != nil {
				w.Fatal(err)
			}
		}
	}
}

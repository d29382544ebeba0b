package server

import (
	"fmt"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi/incidents"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
)

// BenchmarkLookForIncidents looks at 200 endpoints, 1,000 pods and 100,000 jobs.
func BenchmarkLookForIncidents(b *testing.B) {
	stores := Stores{Pods: memory.NewPods(), Endpoints: memory.NewEndpoints(), Jobs: memory.NewJobs()}
	cat := catalog.Local(4096, 4096)
	s, err := New(b.Context(), &Options{
		Stores: stores, Catalog: cat,
		Hosts: []pods.Host{{ID: "local", DataCenter: cat.DataCenters[0].ID, Runtime: memory.NewRuntime(nil), VCPU: map[string]int{catalog.HostFlavor: 4096}, Memory: 4096}},
	})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 1000 {
		if _, err := s.services.Pods.Create(b.Context(), fmt.Sprint("user-", i%50), pods.CreateRequest{Name: "p", Image: "img", CPU: &pods.CPURequest{ID: catalog.HostFlavor, VCPU: 2}}); err != nil {
			b.Fatal(err)
		}
	}
	for i := range 200 {
		e := &endpoints.Endpoint{ID: fmt.Sprint("e", i), Created: time.Now(), Version: 1, Workers: endpoints.WorkerLimits{Max: 1}}
		if err := stores.Endpoints.Create(b.Context(), e); err != nil {
			b.Fatal(err)
		}
		for n := range 500 {
			if _, err := s.services.Jobs.Submit(b.Context(), fmt.Sprint("user-", n%50), e.ID, serverless.Request{Input: []byte("{}")}); err != nil {
				b.Fatal(err)
			}
		}
	}
	w := &watcher{Server: s, seen: map[string]*otherServer{}, wall: time.Now().Round(0), steady: time.Now()}
	for b.Loop() {
		incidents.List(w.survey(b.Context(), time.Now().Add(time.Minute)))
	}
}

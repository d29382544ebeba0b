package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless"
)

// wire makes the stores, the runtime and the services on them.
func (v *server) wire(ctx context.Context) error {
	v.findGPUs()
	rt, err := v.foundation(ctx)
	if err != nil {
		return err
	}
	st := v.stores
	used := podfleet.References{Pods: pods.References{Pods: st.pods}, Endpoints: serverless.References{Endpoints: st.endpoints}}
	v.registries = registries.New(st.registries, &registries.Options{InUse: used})
	cat, hosts := v.hosts(rt)
	storage, _ := pods.As[volumes.Storage](rt) // simulated volumes hold nothing
	v.billing = billing.New(st.billing, nil)
	v.volumes = volumes.New(st.volumes, cat, &volumes.Options{Meter: v.billing, InUse: used, Storage: storage})
	v.templates = templates.New(st.templates, &templates.Options{InUse: used.Pods, Secrets: v.registries})
	v.sshKeys = sshkeys.New(st.sshKeys)
	v.pods, err = pods.New(st.pods, cat, hosts, &pods.Options{
		Secrets: v.registries, Volumes: v.volumes, Templates: v.templates, Keys: v.sshKeys, Meter: v.billing,
		Domain: v.settings.ServiceDomain, Log: v.log,
		Foreign: podfleet.IsWorker,
	})
	if err != nil {
		return err
	}
	err = st.endpoints.Create(ctx, &serverless.Endpoint{ID: echoEndpoint, Name: echoEndpoint, Created: time.Now()})
	if err != nil && !errors.Is(err, serverless.ErrEndpointExists) {
		return fmt.Errorf("endpoint %s: %w", echoEndpoint, err)
	}
	fleet, err := podfleet.New(st.pods, cat, hosts, &podfleet.Options{Secrets: v.registries, Volumes: v.volumes})
	if err != nil {
		return err
	}
	v.jobs = serverless.New(st.jobs, st.endpoints, &serverless.Options{
		Logger: v.log, Sender: v.settings.webhooks, Catalog: podfleet.Catalog(cat), Registries: v.registries, Volumes: v.volumes,
		Templates: podfleet.Templates(v.templates),
		Fleet:     fleet,
		WorkerURL: v.workers.get, WorkerSecret: st.workerSecret,
		Meter: podfleet.Meter(cat, v.billing),
	})
	return v.declare(ctx)
}

// foundation opens the runtime and the stores. A store that is there comes first: with a key
// that is not its own nothing else is made. The key of a new one is made under the lock of
// the runtime, which is that of the data directory, so that two servers do not make two.
func (v *server) foundation(ctx context.Context) (rt pods.Runtime, err error) {
	if hasStore(v.settings) {
		if v.stores, err = openStores(ctx, v.settings, v.log); err != nil {
			return nil, err
		}
	}
	if rt, err = v.runtime(ctx); err != nil {
		return nil, err
	}
	if v.stores == nil {
		v.stores, err = openStores(ctx, v.settings, v.log)
	}
	return rt, err
}

// hosts are this machine, or the made-up stock of the sample catalog.
func (v *server) hosts(rt pods.Runtime) (catalog.Catalog, []pods.Host) {
	if v.settings.Catalog == "sample" {
		cat := catalog.Sample()
		return cat, pods.Hosts(cat, rt)
	}
	cores, memory, gpus := runtime.NumCPU(), machineMemory(), v.offered(rt)
	cat := catalog.Local(cores, memory, gpus.types...)
	cat.DataCenters[0].GlobalNetwork = rt.Capabilities().Networks
	return cat, []pods.Host{{
		ID: "local", DataCenter: catalog.LocalDataCenter, Runtime: rt, CUDA: gpus.cuda(),
		GPUs: gpus.devices,
		VCPU: map[string]int{catalog.HostFlavor: max(cores, 2)}, Memory: memory,
	}}
}

// machineMemory is in GB. Where it cannot be read a small machine is assumed.
func machineMemory() int {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 8
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if rest, ok := strings.CutPrefix(sc.Text(), "MemTotal:"); ok {
			kb, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(rest, "kB")))
			if err == nil {
				return max(kb>>20, 1)
			}
		}
	}
	return 8
}

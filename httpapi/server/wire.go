package server

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/pods/spending"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
)

// wire creates the services that have stores, and connects them.
func wire(o *Options) (httpapi.Services, error) {
	var all httpapi.Services
	if o.Stores.Billing != nil {
		all.Billing = billing.New(o.Stores.Billing, o.Clock)
		if o.Jobs.Server != nil {
			all.Billing = billing.NewShared(o.Stores.Billing, o.Clock, o.Jobs.Server.ID())
		}
	}
	if all.Billing == nil && o.Budgets.Spends() {
		return all, errors.New("server: budgets in money need Stores.Billing")
	}
	wireRecords(o, &all)
	if o.Stores.Pods != nil {
		service, err := pods.New(o.Stores.Pods, o.Catalog, o.Hosts, podOptions(o, &all))
		if err != nil {
			return all, fmt.Errorf("server: %w", err)
		}
		all.Pods = service
	}
	if o.Stores.Jobs != nil && o.Stores.Endpoints != nil {
		opts, err := jobOptions(o, &all)
		if err != nil {
			return all, err
		}
		all.Jobs = serverless.New(o.Stores.Jobs, o.Stores.Endpoints, opts)
	}
	all.Budgets = ledger(o, all.Jobs)
	if all.Billing != nil {
		all.Spending = spendingOf(o, &all)
	}
	return all, nil
}

// spendingOf judges what users spend on pods and workers.
func spendingOf(o *Options, all *httpapi.Services) *spending.Service {
	opts := spending.Options{Budgets: o.Budgets, Billing: all.Billing, Pods: all.Pods, Clock: o.Clock, Logger: o.Logger}
	if all.Jobs != nil {
		opts.Changed = all.Jobs.Resync
	}
	return spending.New(opts)
}

// ledger counts what users have in the stores and in this process. jobs may be nil.
func ledger(o *Options, jobs *serverless.Service) *budget.Ledger {
	counters := append(slices.Clone(o.Stores.Counters), o.API.InFlight)
	if jobs != nil {
		counters = append(counters, jobs.Sending())
	}
	return budget.NewLedger(o.Budgets, counters...)
}

// wireRecords creates the services whose records pods and endpoints use.
func wireRecords(o *Options, all *httpapi.Services) {
	used := references{}
	if o.Stores.Pods != nil {
		used.pods = append(used.pods, pods.References{Pods: o.Stores.Pods})
		used.all = append(used.all, pods.References{Pods: o.Stores.Pods})
	}
	if o.Stores.Endpoints != nil {
		used.all = append(used.all, endpoints.References{Endpoints: o.Stores.Endpoints})
	}
	if o.Stores.Registries != nil {
		opts := o.Registries
		if opts.InUse == nil {
			opts.InUse = used
		}
		all.Registries = registries.New(o.Stores.Registries, &opts)
	}
	if o.Stores.Volumes != nil {
		opts := o.Volumes
		if opts.InUse == nil {
			opts.InUse = used
		}
		if opts.Storage == nil {
			opts.Storage = storage(o.Hosts)
		}
		if opts.Meter == nil && all.Billing != nil {
			opts.Meter = all.Billing
		}
		all.Volumes = volumes.New(o.Stores.Volumes, o.Catalog, &opts)
	}
	if o.Stores.Templates != nil {
		opts := o.Templates
		if opts.InUse == nil {
			opts.InUse = used
		}
		if opts.Secrets == nil && all.Registries != nil {
			opts.Secrets = all.Registries
		}
		all.Templates = templates.New(o.Stores.Templates, &opts)
	}
	if o.Stores.Accounts != nil {
		opts := o.Accounts
		if fixed, ok := o.API.Auth.(accounts.Fixed); ok && opts.Fixed == nil {
			opts.Fixed = fixed
		}
		all.Accounts = accounts.New(o.Stores.Accounts, &opts)
	}
	if o.Stores.SSHKeys != nil {
		all.SSHKeys = sshkeys.New(o.Stores.SSHKeys)
	}
	if o.Stores.Secrets != nil {
		all.Secrets = secrets.New(o.Stores.Secrets, &o.Secrets)
	}
}

// podOptions returns Options.Pods, connected to the other services.
func podOptions(o *Options, all *httpapi.Services) *pods.Options {
	opts := o.Pods
	if opts.Secrets == nil && all.Registries != nil {
		opts.Secrets = all.Registries
	}
	if opts.EnvSecrets == nil && all.Secrets != nil {
		opts.EnvSecrets = all.Secrets
	}
	if opts.Volumes == nil && all.Volumes != nil {
		opts.Volumes = all.Volumes
	}
	if opts.Templates == nil && all.Templates != nil {
		opts.Templates = all.Templates
	}
	if opts.Keys == nil && all.SSHKeys != nil {
		opts.Keys = all.SSHKeys
	}
	if opts.Meter == nil && all.Billing != nil {
		opts.Meter = all.Billing
	}
	if opts.Afford == nil && all.Billing != nil {
		opts.Afford = func(ctx context.Context, owner string, more float64, start func() error) error {
			return all.Spending.Afford(ctx, owner, more, start)
		}
	}
	if opts.Foreign == nil && o.Stores.Jobs != nil {
		opts.Foreign = podfleet.IsWorker
	}
	return &opts
}

// jobOptions returns Options.Jobs, connected to the other services.
func jobOptions(o *Options, all *httpapi.Services) (*serverless.Options, error) {
	opts := o.Jobs
	if opts.Registries == nil && all.Registries != nil {
		opts.Registries = all.Registries
	}
	if opts.Volumes == nil && all.Volumes != nil {
		opts.Volumes = all.Volumes
	}
	if opts.Templates == nil && all.Templates != nil {
		opts.Templates = podfleet.Templates(all.Templates)
	}
	if opts.Catalog == nil && len(o.Catalog.GPUs)+len(o.Catalog.CPUs) > 0 {
		opts.Catalog = podfleet.Catalog(o.Catalog)
	}
	if opts.Budgets == nil {
		opts.Budgets = o.Budgets
	}
	if opts.Schedules == nil {
		opts.Schedules = o.Stores.Schedules
	}
	if opts.JobLogs == nil {
		opts.JobLogs = o.Stores.JobLogs
	}
	if opts.Batches == nil {
		opts.Batches = o.Stores.Batches
	}
	if opts.DecodeRun == nil {
		opts.DecodeRun = httpapi.DecodeRun
	}
	if opts.Meter == nil && all.Billing != nil {
		opts.Meter = podfleet.Meter(o.Catalog, all.Billing)
	}
	if opts.Spent == nil && all.Billing != nil {
		opts.Spent = func(ctx context.Context, owner string) (string, time.Time, error) {
			return all.Spending.Spent(ctx, owner)
		}
	}
	if opts.Prober == nil && !opts.Deterministic { // its checks would not follow the order of calls
		opts.Prober = httpapi.NewProber()
	}
	if opts.Fleet != nil || o.Stores.Pods == nil || len(o.Hosts) == 0 {
		return &opts, nil
	}
	fo := podfleet.Options{Overcommit: o.Pods.Overcommit, Server: o.Volumes.Server, Deterministic: opts.Deterministic}
	if all.Registries != nil {
		fo.Secrets = all.Registries
	}
	if all.Volumes != nil {
		fo.Volumes = all.Volumes
	}
	if all.Secrets != nil {
		fo.EnvSecrets = all.Secrets
	}
	fleet, err := podfleet.New(o.Stores.Pods, o.Catalog, o.Hosts, &fo)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	opts.Fleet = fleet
	if o.Fleet != nil {
		opts.Fleet = o.Fleet(fleet)
	}
	return &opts, nil
}

// references says whether any pod or endpoint uses a record, before it is deleted.
type references struct {
	all []interface {
		registries.InUse
		volumes.InUse
	}
	pods []templates.InUse
}

// RegistryInUse implements registries.InUse.
func (r references) RegistryInUse(ctx context.Context, owner, id string) (bool, error) {
	for _, who := range r.all {
		if used, err := who.RegistryInUse(ctx, owner, id); used || err != nil {
			return used, err
		}
	}
	return false, nil
}

// VolumeInUse implements volumes.InUse.
func (r references) VolumeInUse(ctx context.Context, owner, id string) (bool, error) {
	for _, who := range r.all {
		if used, err := who.VolumeInUse(ctx, owner, id); used || err != nil {
			return used, err
		}
	}
	return false, nil
}

// TemplateInUse implements templates.InUse.
func (r references) TemplateInUse(ctx context.Context, owner, id string) (bool, error) {
	for _, who := range r.pods {
		if used, err := who.TemplateInUse(ctx, owner, id); used || err != nil {
			return used, err
		}
	}
	return false, nil
}

// everywhere is the volume storage of all hosts.
type everywhere []volumes.Storage

// storage returns the storage of volumes, with each runtime of hosts once, or nil if no
// runtime has one.
func storage(hosts []pods.Host) volumes.Storage {
	var all everywhere
	seen := map[pods.Runtime]bool{}
	for _, h := range hosts {
		if seen[h.Runtime] {
			continue
		}
		seen[h.Runtime] = true
		if s, ok := pods.As[volumes.Storage](h.Runtime); ok {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// RemoveVolume implements volumes.Storage.
func (e everywhere) RemoveVolume(ctx context.Context, id string) error {
	for _, s := range e {
		if err := s.RemoveVolume(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// distinct reports whether a runtime is not nil and can be a map key.
func distinct(rt pods.Runtime) bool { return rt != nil && reflect.TypeOf(rt).Comparable() }

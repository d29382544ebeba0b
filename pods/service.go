package pods

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/internal/id"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/telemetry"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/servers"
)

// Options configures a Service.
type Options struct {
	Clock           Clock         // default: the system's
	Rand            io.Reader     // ids; default crypto/rand; read by one caller at a time
	Secrets         PullSecrets   // default: no credential exists
	EnvSecrets      EnvSecrets    // values for variables; default: variables are as they were written
	Volumes         Volumes       // default: no network volume exists
	Templates       Templates     // default: no template exists
	Keys            PublicKeys    // of users, for startSsh; default: nobody has any
	Meter           Meter         // gets the usages of pods; default: they are not kept
	Afford          Afford        // says whether an owner may spend more; default: everybody may
	Domain          string        // service domain of internal names; default "podyard"
	WaitForCapacity bool          // a pod without a host waits for one instead of being refused
	Overcommit      float64       // vCPUs promised for each vCPU of a host; default catalog.Overcommit
	Grace           time.Duration // how long a removal waits before it kills the processes; default 1s. A stop: see Extras
	MaxCalls        int           // calls to runtimes at once; default 256
	// KeySecret is the secret from which the keys of pods are derived, the same on all servers of a store.
	// KeyURL returns the base URL of the API as a program on this host reaches it; "": it does not. With both
	// the environment of a pod has its key (docs/decisions.md 55). Default: pods have no key.
	KeySecret []byte
	KeyURL    func() string
	// Foreign reports whether a container without a pod belongs to another user of the same
	// runtime, so that it is not removed. Default: all containers without a pod are removed.
	Foreign func(podID string) bool
	// Server makes this program one of several over one store (docs/servers.md): it leases its
	// hosts, acts on those whose lease it has, and places pods on the hosts of all. The clock of
	// both must be the same. Default: the store is this program's own.
	Server *servers.Server
	// ServerName is the name of Server for operators.
	ServerName string
	// ServerInstance, if not empty, is the same after a restart, and no other program that runs
	// has it. With it a program that was killed has its hosts at once when it is started again,
	// and not only when its leases are over.
	ServerInstance string
	// Address is where Reach of the other servers finds this one. Default: they do not.
	Address string
	// Reach returns what reads logs and loads of the pods of another server, and runs commands inside
	// them, by its name and address. Default: nothing does.
	Reach func(server, address string) (LogReader, Sampler, Executor)
	// Observer gets what happens to pods and what is asked of their hosts, for metrics and traces.
	// Default: none.
	Observer telemetry.Observer
	// Logger gets failures of hosts and stores. Default: nothing is logged.
	Logger *slog.Logger
}

// A Service has the pods of all users: rules, ownership, placement, and the loop that brings
// hosts to the desired state. It is safe for concurrent use.
//
// Its methods change the desired state and return; [Service.Run], or calls of [Service.Step],
// do the rest. For pods of another user they return ErrNotFound.
type Service struct {
	store      PodStore
	placer     *Placer
	hosts      map[string]*Host // of the placer
	order      []*Host
	clock      Clock
	secrets    PullSecrets
	envSecrets EnvSecrets // may be nil
	volumes    Volumes
	templates  Templates
	keys       PublicKeys
	meter      Meter
	afford     Afford // may be nil
	domain     string
	queue      bool
	grace      time.Duration
	foreign    func(string) bool
	log        *slog.Logger
	observer   telemetry.Observer // may be nil
	runs       runs
	calls      calls

	shared *shared // nil: this program is alone on the store
	reach  func(server, address string) (LogReader, Sampler, Executor)

	keySecret []byte
	keyURL    func() string

	rand        io.Reader
	idempotency idempotency.Guard

	loop        loop
	subscribers subscribers
}

// New returns a service for the pods in store. hosts are those that this program runs; pods on
// other hosts are not touched, except that with Options.Server their desired state is written
// for the server that has the host. An error says what is wrong with hosts. o may be nil.
func New(store PodStore, c catalog.Catalog, hosts []Host, o *Options) (*Service, error) {
	var opt Options
	if o != nil {
		opt = *o
	}
	placer, err := NewPlacer(store, c, hosts, opt.Overcommit)
	if err != nil {
		return nil, err
	}
	s := &Service{
		store: store, placer: placer, hosts: placer.hosts, order: placer.order,
		clock: opt.Clock, secrets: opt.Secrets, envSecrets: opt.EnvSecrets, volumes: opt.Volumes,
		templates: opt.Templates, keys: opt.Keys, meter: opt.Meter, afford: opt.Afford,
		domain: cmp.Or(opt.Domain, "podyard"), queue: opt.WaitForCapacity,
		grace:     cmp.Or(opt.Grace, time.Second),
		keySecret: slices.Clone(opt.KeySecret), keyURL: opt.KeyURL,
		foreign: opt.Foreign, log: opt.Logger, observer: opt.Observer, rand: opt.Rand,
	}
	if s.clock == nil {
		s.clock = clock.System{}
	}
	if s.rand == nil {
		s.rand = rand.Reader
	}
	s.rand = id.LockedReader(s.rand)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	opt.Logger = s.log
	s.shared, s.reach = newShared(&opt, s.order, placer.catalog), opt.Reach
	s.placer.shared = s.shared
	s.loop.init(cmp.Or(opt.MaxCalls, 256))
	return s, nil
}

// Catalog is what can be rented: the catalog of New, without the global network of data centers
// where a host's runtime has no private networks. With Options.Server it has the GPU types of the
// hosts of other servers too, as those offer them. Do not change it.
func (s *Service) Catalog() catalog.Catalog { return s.placer.Catalog() }

// Create checks r and adds a pod for owner. The pod is PROVISIONING; a later Get shows when it
// is RUNNING.
//
// Errors: a template that does not exist (404), the faults of r (422, or 400 for rules across
// fields and for what an [Admitter] refuses), ErrNoCapacity without capacity, unless
// Options.WaitForCapacity is set, what Options.Afford returns, *idempotency.Repeated for a request
// that was made before with its key.
func (s *Service) Create(ctx context.Context, owner string, r CreateRequest) (*Pod, error) {
	return idempotency.Do(ctx, r.Idempotency, idempotency.Creation[*Pod]{
		Guard: &s.idempotency, Store: s.store, Now: s.clock.Now(),
		Check: func() error {
			_, err := s.newPod(ctx, owner, r)
			return err
		},
		Create: func(k *idempotency.Record) (*Pod, error) { return s.create(ctx, owner, r, k) },
	})
}

func (s *Service) create(ctx context.Context, owner string, r CreateRequest, k *idempotency.Record) (*Pod, error) {
	p, err := s.newPod(ctx, owner, r)
	if err != nil {
		return nil, err
	}
	err = s.affordable(ctx, []*Pod{p}, func() error { return s.placeNew(ctx, p, k) })
	if err != nil {
		return nil, err
	}
	s.notifyChanged(p.ID)
	return p, nil
}

// placeNew stores a new pod on a host that it finds, or without one if pods may wait.
func (s *Service) placeNew(ctx context.Context, p *Pod, k *idempotency.Record) error {
	err := s.place(ctx, p, func(pl Placement) error {
		p.Placement = pl
		return s.insert(ctx, p, k)
	})
	if errors.Is(err, ErrNoCapacity) && s.queue {
		p.Placement = Placement{}
		p.appendJournal(p.Created, "waiting for capacity: "+describeRequirements(p))
		err = s.insert(ctx, p, k)
	}
	return err
}

// insert stores p under an id that is not taken.
func (s *Service) insert(ctx context.Context, p *Pod, k *idempotency.Record) error {
	return id.NewUnique(s.rand, ErrExists, func(made string) error {
		p.ID = made
		return idempotency.Add(ctx, s.store, p, made, k)
	})
}

// newPod returns a pod of a valid request, without an id and a host.
func (s *Service) newPod(ctx context.Context, owner string, r CreateRequest) (*Pod, error) {
	faults := r.Violations
	p, err := s.draft(ctx, owner, &r, &faults)
	if err != nil {
		return nil, err
	}
	if err := faults.Err(createOrder); err != nil {
		return nil, err
	}
	p.Injected, err = s.injectedEnv(ctx, owner, &r)
	return p, err
}

// draft returns the pod of a request, and adds what is wrong with it to faults. It applies the
// template to r.
func (s *Service) draft(ctx context.Context, owner string, r *CreateRequest, faults *problem.Violations) (*Pod, error) {
	v := rules{s.Catalog(), container.Rules{Violations: faults}}
	t, err := s.template(ctx, v, owner, r.TemplateID)
	if err != nil {
		return nil, err
	}
	if t != nil {
		r.applyTemplate(t)
	}
	v.create(r)
	now := s.clock.Now()
	p := &Pod{
		Owner: owner, Name: r.Name, Cloud: cmp.Or(r.Cloud, DefaultCloud), Template: r.TemplateID, Created: now,
		Config: r.config(), DataCenters: slices.Clone(r.DataCenterIDs),
		Seen: ObservedState{Status: Provisioning},
	}
	if g := r.GPU; g != nil {
		p.GPU = &GPU{ID: g.ID, Count: 1}
		setIfGiven(&p.GPU.Count, g.Count)
		p.CUDA.Allowed = slices.Clone(g.AllowedCUDAVersions)
		setIfGiven(&p.CUDA.Min, g.MinCUDAVersion)
		setIfGiven(&p.MinShare.Memory, g.MinRAM)
		setIfGiven(&p.MinShare.VCPU, g.MinVCPU)
	}
	if c := r.CPU; c != nil {
		f, _ := s.Catalog().CPU(c.ID)
		p.CPU = &CPU{ID: c.ID, VCPU: c.VCPU, Memory: f.Memory(c.VCPU)}
	}
	if err := s.checkReferences(ctx, v, p); err != nil {
		return nil, err
	}
	if r.GlobalNetworking {
		v.globalNetworking(p.GPU, p.DataCenters)
	}
	s.admit(p, p.Config, faults)
	p.Want = DesiredState{Power: PowerOn, Gen: 1, Run: 1, Grace: s.grace, Applied: p.Config.Clone()}
	p.appendJournal(now, "pod created")
	return p, nil
}

// checkReferences checks that what p refers to in other stores exists. With a network mount the
// volume decides the data center of p (docs/decisions.md 21).
func (s *Service) checkReferences(ctx context.Context, v rules, p *Pod) error {
	if err := v.Registry(ctx, s.secrets, p.Owner, p.Config.Registry); err != nil {
		return fmt.Errorf("pods: %w", err)
	}
	if len(p.Config.Mounts.Network) == 0 || p.Config.Mounts.Network[0].VolumeID == "" {
		return nil
	}
	const place = "/mounts/network/0/volumeId"
	id := p.Config.Mounts.Network[0].VolumeID
	dc, err := "", error(problem.New(problem.NotFound, "no volumes here"))
	if s.volumes != nil {
		dc, err = s.volumes.Volume(ctx, p.Owner, id)
	}
	switch {
	case problem.KindOf(err) == problem.NotFound && err != nil:
		v.BadRequest(place, "network volume %q does not exist", id)
	case err != nil:
		return fmt.Errorf("pods: find volume %q: %w", id, err)
	case len(p.DataCenters) > 0 && !slices.Contains(p.DataCenters, dc):
		v.BadRequest(place, "network volume %q is in another data center, %s", id, dc)
	default:
		p.DataCenters = []string{dc}
	}
	return nil
}

// Get returns a pod of owner.
func (s *Service) Get(ctx context.Context, owner, id string) (*Pod, error) {
	p, err := s.store.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := p.checkVisible(owner); err != nil {
		return nil, err
	}
	return p, nil
}

// checkVisible returns ErrNotFound for another user, and for a terminated pod.
func (p *Pod) checkVisible(owner string) error {
	if p.Owner != owner || p.Want.Power == PowerTerminated {
		return ErrNotFound
	}
	return nil
}

// Owner returns whose a pod is, or ErrNotFound.
func (s *Service) Owner(ctx context.Context, id string) (string, error) {
	p, err := s.store.Get(ctx, id)
	if err != nil {
		return "", err
	}
	return p.Owner, p.checkVisible(p.Owner)
}

// List returns the pods of owner, oldest first.
func (s *Service) List(ctx context.Context, owner string) ([]*Pod, error) {
	return s.list(ctx, Filter{Owner: owner}, func(*Pod) string { return owner })
}

// All returns the pods of all users, oldest first.
func (s *Service) All(ctx context.Context) ([]*Pod, error) {
	return s.list(ctx, Filter{}, func(p *Pod) string { return p.Owner })
}

func (s *Service) list(ctx context.Context, f Filter, owner func(*Pod) string) ([]*Pod, error) {
	list := []*Pod{}
	for p, err := range s.store.List(ctx, f) {
		if err != nil {
			return nil, fmt.Errorf("pods: list: %w", err)
		}
		if p.checkVisible(owner(p)) == nil {
			list = append(list, p)
		}
	}
	return list, nil
}

// Update changes a pod: its name and lock at once, everything else at its next start,
// restart or reset (docs/decisions.md 20).
func (s *Service) Update(ctx context.Context, owner, id string, r UpdateRequest) (*Pod, error) {
	if _, err := s.Get(ctx, owner, id); err != nil {
		return nil, err
	}
	faults := r.Violations
	v := rules{s.Catalog(), container.Rules{Violations: &faults}}
	t, err := s.template(ctx, v, owner, r.TemplateID)
	if err != nil {
		return nil, err
	}
	if t != nil {
		r.applyTemplate(t)
	}
	v.update(&r)
	if r.Registry != nil {
		if err := v.Registry(ctx, s.secrets, owner, *r.Registry); err != nil {
			return nil, fmt.Errorf("pods: %w", err)
		}
	}
	return s.change(ctx, owner, id, func(p *Pod) error {
		found := faults // fn may run again, and starts with the same faults
		rules{s.Catalog(), container.Rules{Violations: &found}}.change(p, &r)
		next := *p
		r.apply(&next)
		if r.Image != nil || !r.command().IsZero() || r.Env != nil || r.Extras.User != nil {
			s.admit(p, next.Config, &found)
		}
		if err := found.Err(updateOrder); err != nil {
			return err
		}
		if err := checkAlone(p); err != nil {
			return err
		}
		*p = next
		return nil
	})
}

// change applies fn to a pod of owner and wakes the loop.
func (s *Service) change(ctx context.Context, owner, id string, fn func(*Pod) error) (*Pod, error) {
	p, err := s.store.Update(ctx, id, func(p *Pod) error {
		if err := p.checkVisible(owner); err != nil {
			return err
		}
		return fn(p)
	})
	if err != nil {
		return nil, err
	}
	s.notifyChanged(id)
	return p, nil
}

// InternalDNS returns the name of p in the private network of its owner.
func (s *Service) InternalDNS(p *Pod) string { return p.ID + "." + s.domain + ".internal" }

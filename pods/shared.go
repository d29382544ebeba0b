package pods

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/serverless/servers"
)

// hostPrefix begins the names of the leases of hosts.
const hostPrefix = "host/"

// A hostRow is what a server shows to the others of one of its hosts. What is free there is in
// the store of pods, as claims.
type hostRow struct {
	Server     string // its name
	Instance   string `json:",omitempty"`
	Address    string // empty: the others cannot reach it
	DataCenter string
	Clouds     []Cloud           `json:",omitempty"`
	GPUs       []HostGPUs        `json:",omitempty"`
	Types      []catalog.GPUType `json:",omitempty"` // of GPUs, as the server offers them
	VCPU       map[string]int    `json:",omitempty"`
	Memory     int               `json:",omitempty"`
	CUDA       string            `json:",omitempty"`
	Networks   bool              `json:",omitempty"` // joins private networks
}

// shared is what a service knows of the hosts of all servers. A nil one is of a service that is
// alone on its store.
type shared struct {
	server   *servers.Server
	name     string
	instance string // may be empty
	address  string
	log      *slog.Logger
	own      []*Host
	catalog  catalog.Catalog // of this server

	mu     sync.Mutex
	epochs map[string]uint64 // of the leases that this server has
	others []remoteHost      // of other servers that live, by id; some may be own as well
	looked bool              // others has been read
	types  []catalog.GPUType // of GPUs that only others have or had, by id
}

// A remoteHost is a host that another server has.
type remoteHost struct {
	Host // without a Runtime
	row  hostRow
}

func newShared(o *Options, own []*Host, c catalog.Catalog) *shared {
	if o.Server == nil {
		return nil
	}
	return &shared{server: o.Server, name: o.ServerName, instance: o.ServerInstance, address: o.Address, log: o.Logger, own: own, catalog: c, epochs: map[string]uint64{}}
}

// row is what the others see of h.
func (d *shared) row(h *Host) ([]byte, error) {
	var types []catalog.GPUType
	for _, g := range h.GPUs {
		if t, ok := d.catalog.GPU(g.Type); ok {
			types = append(types, t)
		}
	}
	return json.Marshal(hostRow{
		Server: d.name, Instance: d.instance, Address: d.address, DataCenter: h.DataCenter, Clouds: h.Clouds, GPUs: h.GPUs, Types: types,
		VCPU: h.VCPU, Memory: h.Memory, CUDA: h.CUDA, Networks: h.Runtime.Capabilities().PrivateNetworks,
	})
}

// refresh renews the leases of the own hosts and reads those of the others. gained are hosts
// whose lease this server did not have before. changed reports whether a host has come or gone.
func (d *shared) refresh(ctx context.Context, now time.Time) (gained []string, changed bool, err error) {
	others, err := d.readOthers(ctx, now)
	if err != nil {
		return nil, false, err
	}
	epochs := map[string]uint64{}
	for _, h := range d.own {
		if slices.ContainsFunc(others, func(o remoteHost) bool { return o.ID == h.ID }) {
			continue // another server has it
		}
		data, err := d.row(h)
		if err != nil {
			return nil, false, fmt.Errorf("pods: describe host %q: %w", h.ID, err)
		}
		l, leads, err := d.server.Lead(ctx, hostPrefix+h.ID, data)
		if err != nil {
			return nil, false, fmt.Errorf("pods: lease host %q: %w", h.ID, err)
		}
		if leads {
			epochs[h.ID] = l.Epoch
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, epoch := range epochs {
		if d.epochs[id] != epoch {
			gained = append(gained, id)
		}
	}
	same := func(a, b remoteHost) bool { return a.ID == b.ID }
	changed = len(gained) > 0 || !slices.EqualFunc(d.others, others, same)
	d.epochs, d.others, d.looked = epochs, others, true
	d.learn()
	return gained, changed, nil
}

// learn keeps the GPU types of the others that this server does not have. One whose server has gone
// stays: there is no capacity of it, as of an own one whose host is drained. The caller holds mu.
func (d *shared) learn() {
	types := slices.Clone(d.types)
	for _, h := range d.others {
		for _, t := range h.row.Types {
			is := func(known catalog.GPUType) bool { return known.ID == t.ID }
			if _, own := d.catalog.GPU(t.ID); !own && !slices.ContainsFunc(types, is) {
				types = append(types, t)
			}
		}
	}
	slices.SortFunc(types, func(a, b catalog.GPUType) int { return strings.Compare(a.ID, b.ID) })
	d.types = types
}

// offer returns c with the GPU types that only other servers have.
func (d *shared) offer(c catalog.Catalog) catalog.Catalog {
	if d == nil {
		return c
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.types) > 0 {
		c.GPUs = slices.Concat(c.GPUs, d.types)
	}
	return c
}

func (d *shared) readOthers(ctx context.Context, now time.Time) (list []remoteHost, err error) {
	leases, err := d.server.Store().Leases(ctx, now, hostPrefix)
	if err != nil {
		return nil, fmt.Errorf("pods: list the hosts of all servers: %w", err)
	}
	for _, l := range leases {
		if l.Holder == d.server.ID() {
			continue
		}
		var row hostRow
		if err := json.Unmarshal(l.Data, &row); err != nil {
			d.log.WarnContext(ctx, "pods: a host of another server cannot be read", "lease", l.Name, "err", err)
			continue
		}
		if d.instance != "" && row.Instance == d.instance {
			if err := d.server.Store().Release(ctx, l); err != nil { // of this server before it was started again
				return nil, fmt.Errorf("pods: release the lease %q: %w", l.Name, err)
			}
			continue
		}
		list = append(list, remoteHost{row: row, Host: Host{
			ID: strings.TrimPrefix(l.Name, hostPrefix), DataCenter: row.DataCenter, Clouds: row.Clouds,
			GPUs: row.GPUs, VCPU: row.VCPU, Memory: row.Memory, CUDA: row.CUDA,
		}})
	}
	return list, nil
}

// epoch returns the epoch of the lease of a host, if this server has it and may rely on it.
func (d *shared) epoch(host string) (epoch uint64, ok bool) {
	d.mu.Lock()
	epoch, ok = d.epochs[host]
	d.mu.Unlock()
	return epoch, ok && d.server.Leads(hostPrefix+host)
}

// find returns a host of another server that lives.
func (d *shared) find(host string) (remoteHost, bool) {
	if d == nil {
		return remoteHost{}, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.others, func(h remoteHost) bool { return h.ID == host })
	if i < 0 {
		return remoteHost{}, false
	}
	return d.others[i], true
}

// self is what this server is called where volumes say at which server they are: by its instance, or
// else by its name.
func (d *shared) self() string { return cmp.Or(d.instance, d.name) }

// serverOf returns which server has a host; empty: that of another server that has gone.
func (d *shared) serverOf(host string) string {
	if h, ok := d.find(host); ok {
		return cmp.Or(h.row.Instance, h.row.Server)
	}
	if slices.ContainsFunc(d.own, func(h *Host) bool { return h.ID == host }) {
		return d.self()
	}
	return ""
}

// lookUp is find, also before the first refresh of a server that has just been started.
func (d *shared) lookUp(ctx context.Context, now time.Time, host string) (remoteHost, bool) {
	h, ok := d.find(host)
	if ok || d == nil || d.hasLooked() {
		return h, ok
	}
	others, err := d.readOthers(ctx, now)
	i := slices.IndexFunc(others, func(h remoteHost) bool { return h.ID == host })
	if err != nil || i < 0 {
		return remoteHost{}, false
	}
	return others[i], true
}

func (d *shared) hasLooked() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.looked
}

// all returns own, without those that another server has, and the hosts of the others.
func (d *shared) all(own []*Host) []*Host {
	if d == nil {
		return own
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []*Host
	for _, h := range own {
		if !slices.ContainsFunc(d.others, func(o remoteHost) bool { return o.ID == h.ID }) {
			list = append(list, h)
		}
	}
	for i := range d.others {
		list = append(list, &d.others[i].Host)
	}
	return list
}

// owned returns a host that this program acts on: one of its own, and with several servers one
// whose lease it has.
func (s *Service) owned(id string) (*Host, bool) {
	h, ok := s.hosts[id]
	if ok && s.shared != nil {
		_, ok = s.shared.epoch(id)
	}
	return h, ok
}

// fence reports whether this program may write what it has seen of p, and marks p with the epoch
// of its lease. A server whose lease another one had meanwhile may not. Any server may write
// about a pod without a host.
func (s *Service) fence(p *Pod) bool {
	if s.shared == nil || p.Placement.Host == "" {
		return true
	}
	epoch, ok := s.shared.epoch(p.Placement.Host)
	if !ok || p.Seen.Epoch > epoch {
		return false
	}
	p.Seen.Epoch = epoch
	return true
}

// ownedOf returns the hosts of a runtime that this program acts on.
func (s *Service) ownedOf(src *runtimeSource) (list []*Host) {
	for _, h := range src.hosts {
		if _, ok := s.owned(h.ID); ok {
			list = append(list, h)
		}
	}
	return list
}

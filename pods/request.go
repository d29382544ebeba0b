package pods

import (
	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
)

// A CreateRequest asks for a pod (docs/interface.md 2.2). An absent field has its zero value;
// where absent and zero differ, the field is a pointer.
type CreateRequest struct {
	Name             string
	Image            string
	GPU              *GPURequest // exactly one of GPU and CPU
	CPU              *CPURequest
	Args             *string
	Entrypoint       []string // instead of the image's; Cmd too. Args says both, if all are there
	Cmd              []string
	Disk             *int // GB; default 50
	Ports            []string
	Env              map[string]string
	Registry         *string // id of a credential; empty: none
	Mounts           Mounts
	Cloud            Cloud // default Secure
	DataCenterIDs    []string
	GlobalNetworking bool
	// TemplateID names a template whose settings apply where they are absent here.
	TemplateID   string
	StartSSH     *bool // the container finds the user's public keys; default false
	StartJupyter *bool // the container finds a new password for Jupyter; default false
	Extras       ExtrasChange

	// Idempotency is the key of the request (docs/decisions.md 38). Nil: it has none.
	Idempotency *idempotency.Request

	// Violations are faults that a decoder found. They are reported together with the faults of
	// the values. A field has one fault at most.
	Violations problem.Violations
}

// A GPURequest asks for GPUs of one type.
type GPURequest struct {
	ID    string
	Count *int // default 1
	// AllowedCUDAVersions and MinCUDAVersion select hosts by the CUDA version of their drivers
	// ("12.8"): one in the list, or the minimum and later ones. At most one of the two is set;
	// an empty list counts as not set.
	AllowedCUDAVersions []string
	MinCUDAVersion      *string
	// MinRAM (GB) and MinVCPU select hosts by what they give with each GPU. They ask for no more of it.
	MinRAM  *int
	MinVCPU *int
}

// A CPURequest asks for a CPU machine.
type CPURequest struct {
	ID   string
	VCPU int // a power of two, required
}

// An UpdateRequest changes a pod. A nil field changes nothing. Ports and Env replace the old
// ones if they are not nil, also when they are empty. An empty Registry means none. In Mounts,
// a nil Network is absent and an empty one is an explicit empty list.
type UpdateRequest struct {
	Name             *string
	Image            *string
	Args             *string
	Entrypoint       []string // an empty list takes the image's; without one of the two, the other stays
	Cmd              []string
	Disk             *int
	Ports            []string
	Env              map[string]string
	Registry         *string
	Mounts           Mounts
	Locked           *bool
	GlobalNetworking *bool
	Extras           ExtrasChange
	// TemplateID names a template whose image, args, disk, ports, env and registry apply where
	// they are absent here.
	TemplateID string

	// Violations are faults that a decoder found, as in [CreateRequest].
	Violations problem.Violations
}

// createOrder and updateOrder are the documented fields: faults are reported in this
// order.
var createOrder = append([]string{
	"name", "image", "gpu", "gpu/id", "gpu/count", "gpu/allowedCudaVersions", "gpu/minCudaVersion", "gpu/minRamPerGpu", "gpu/minVcpuCountPerGpu", "cpu", "cpu/id", "cpu/vcpuCount",
	"args", "entrypoint", "cmd", "disk", "ports", "env", "registry",
	"mounts", "mounts/persistent", "mounts/persistent/size", "mounts/persistent/path",
	"mounts/network", "mounts/network/0", "mounts/network/0/volumeId", "mounts/network/0/path",
	"cloud", "dataCenterIds", "globalNetworking", "templateId", "startSsh", "startJupyter",
}, ExtrasFields()...)

var updateOrder = append([]string{
	"name", "image", "args", "entrypoint", "cmd", "disk", "ports", "env", "registry",
	"mounts", "mounts/persistent", "mounts/persistent/size", "mounts/persistent/path",
	"mounts/network", "mounts/network/0", "mounts/network/0/volumeId", "mounts/network/0/path",
	"locked", "globalNetworking", "templateId",
}, ExtrasFields()...)

// Defaults and bounds of a request.
const (
	DefaultDisk  = 50 // GB
	DefaultCloud = Secure

	// The interface sets the lower bounds; the upper ones keep sums of bytes within an int64.
	MinPersistentSize = container.MinPersistentSize // GB
	MaxStorage        = container.MaxDisk           // GB

	// MaxJournalLines is how many lines of the system log a pod keeps.
	MaxJournalLines = 100
)

// config returns the container settings of a valid request. Nothing in it is nil
// (docs/decisions.md 16), and it shares nothing with r.
func (r *CreateRequest) config() Config {
	c := Config{
		Image: r.Image, Disk: DefaultDisk, Ports: r.Ports, Env: r.Env, Mounts: r.Mounts,
		GlobalNetworking: r.GlobalNetworking, Extras: r.Extras.Apply(Extras{}),
	}
	c.Args = r.command().Apply("")
	setIfGiven(&c.Disk, r.Disk)
	setIfGiven(&c.Registry, r.Registry)
	if c.Ports == nil {
		c.Ports = []string{}
	}
	if c.Env == nil {
		c.Env = map[string]string{}
	}
	if len(c.Mounts.Network) == 0 {
		c.Mounts.Network = nil
	}
	return c.Clone()
}

func (r *CreateRequest) command() container.CommandChange {
	return container.CommandChange{Args: r.Args, Entrypoint: r.Entrypoint, Cmd: r.Cmd}
}

func (r *CreateRequest) setCommand(c container.CommandChange) {
	r.Args, r.Entrypoint, r.Cmd = c.Args, c.Entrypoint, c.Cmd
}

func (r *UpdateRequest) command() container.CommandChange {
	return container.CommandChange{Args: r.Args, Entrypoint: r.Entrypoint, Cmd: r.Cmd}
}

func (r *UpdateRequest) setCommand(c container.CommandChange) {
	r.Args, r.Entrypoint, r.Cmd = c.Args, c.Entrypoint, c.Cmd
}

// apply writes what r changes into p.
func (r *UpdateRequest) apply(p *Pod) {
	setIfGiven(&p.Name, r.Name)
	setIfGiven(&p.Locked, r.Locked)
	c := p.Config.Clone()
	setIfGiven(&c.Image, r.Image)
	c.Args = r.command().Apply(c.Args)
	setIfGiven(&c.Disk, r.Disk)
	setIfGiven(&c.Registry, r.Registry)
	setIfGiven(&c.GlobalNetworking, r.GlobalNetworking)
	if r.Ports != nil {
		c.Ports = r.Ports
	}
	if r.Env != nil {
		c.Env = r.Env
	}
	if m := r.Mounts.Persistent; m != nil {
		c.Mounts.Persistent = m
	}
	if len(r.Mounts.Network) > 0 {
		c.Mounts.Network = r.Mounts.Network
	}
	c.Extras = r.Extras.Apply(c.Extras)
	p.Config = c.Clone()
}

func setIfGiven[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

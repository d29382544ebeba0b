package pods

import (
	"time"

	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/ratelimit/budget"
)

// A Status is the stage of a pod's lifecycle (docs/interface.md 3.1).
type Status string

// The statuses of a pod.
const (
	Provisioning Status = "PROVISIONING" // being allocated, image being pulled
	Starting     Status = "STARTING"     // the container starts and is not healthy yet
	Running      Status = "RUNNING"      // the container is healthy
	Exited       Status = "EXITED"       // the container has ended or was stopped
	Errored      Status = "ERROR"        // it failed and will not recover by itself
	Terminated   Status = "TERMINATED"   // permanently deleted
)

// An Action is a transition that a user can ask for.
type Action string

// The actions of the interface, and reset, which has an operation of its own.
const (
	Start     Action = "start"
	Stop      Action = "stop"
	Restart   Action = "restart"
	Terminate Action = "terminate"
	Reset     Action = "reset"
)

// A Cloud is a tier of hosts.
type Cloud string

// The tiers.
const (
	Secure    Cloud = "SECURE"
	Community Cloud = "COMMUNITY"
)

// A Pod has the desired state, the placement, and the observed state. Requests write Want; only
// the loop of the service calls a Runtime and writes Seen. So after a crash of a host or a
// server the same record says what is still to be done.
//
// The caller owns a Pod that a store returns, and keeps owning a Pod that it passes to a store.
type Pod struct {
	ID       string // 14 lower-case letters and digits
	Owner    string // the user whose key made it
	Name     string
	Cloud    Cloud
	Template string // id of the template it was made from, or empty
	GPU      *GPU   // exactly one of GPU and CPU is set
	CPU      *CPU
	Locked   bool // cannot be stopped, restarted or reset
	Created  time.Time
	Cluster  *Membership `json:",omitzero"` // nil: it is in no cluster

	Config Config // what the user asked for, PATCH included

	// DataCenters are those that the user allows, in this order; empty: any.
	DataCenters []string
	// CUDA and MinShare say which hosts are allowed.
	CUDA     CUDAVersions
	MinShare catalog.Share `json:",omitzero"` // of each GPU; 0: any
	// Injected are variables of startSsh and startJupyter. A variable of the user with the same
	// name overrides them. They are in no answer.
	Injected map[string]string
	// Used are past usages that the meter does not have yet.
	Used []Usage
	// Told is what its log has said of the budget of its owner.
	Told CostNotice `json:",omitzero"`
	// Placement is empty until a host is found. When compute is released only Host and
	// DataCenter stay, because the container and its disk are there.
	Placement Placement

	Want DesiredState
	Seen ObservedState
	// Journal is the system log: what happened to the pod and why, oldest first, the
	// last MaxJournalLines of it.
	Journal []LogLine
}

// Config is the part of a pod that an update can change. A change takes effect with the next
// generation: at the next start, restart or reset.
type Config struct {
	Image            string
	Args             string
	Disk             int // GB, at least 1
	Ports            []string
	Env              map[string]string
	Registry         string // id of a registry credential, or empty
	Mounts           Mounts
	GlobalNetworking bool
	Extras           Extras `json:",omitzero"`
}

// Mounts has at most one kind set (docs/interface.md 2.3).
type Mounts struct {
	Persistent *PersistentMount
	Network    []NetworkMount // at most one
}

// A PersistentMount is storage on the pod's host; it dies with the pod.
type PersistentMount struct {
	Size int // GB, at least 10
	Path string
}

// A NetworkMount attaches a network volume; it outlives the pod.
type NetworkMount struct {
	VolumeID string
	Path     string
}

// GPU is the compute of a GPU pod.
type GPU struct {
	ID    string // type, as in the catalog
	Count int
}

// CUDAVersions select hosts by the CUDA version of their drivers, major.minor. The zero
// value selects all; at most one of the two is set.
type CUDAVersions struct {
	Allowed []string // one of these
	Min     string   // this one or a later one
}

// CPU is the compute of a CPU pod.
type CPU struct {
	ID     string // flavor, as in the catalog
	VCPU   int
	Memory int // GB, from the flavor's RAM per vCPU
}

// A Placement is where a pod is, and what it has there.
type Placement struct {
	Host       string
	DataCenter string
	// Claims are what the pod takes from its host. They are dropped when it is stopped, fails
	// or is deleted.
	Claims []Claim
	// Devices are the GPUs among the claims, as the host names them.
	Devices []string
	// Share is what goes with each of the pod's GPUs on the host. It stays when the claims are dropped.
	Share catalog.Share `json:",omitzero"`
	// Price is USD an hour while the pod has compute.
	Price float64
	// DiskPrice is USD an hour for the disks while the pod has compute, KeptPrice for the disks
	// that are kept without compute. Since is when the claims were made or released. They are
	// for the meter, and zero without a meter.
	DiskPrice float64
	KeptPrice float64
	Since     time.Time
}

// A Claim takes Units of a resource that has a Limit. The store refuses a write that would
// exceed the limit. An exclusive thing is one unit of one ("gpu/host1/GPU-4c1d", 1, 1); memory
// is many ("memory/host1", 8, 64).
type Claim struct {
	Resource string
	Units    int64
	Limit    int64
}

// A PowerState is what a user wants a pod to be.
type PowerState string

// The powers.
const (
	PowerOn         PowerState = "running"
	PowerOff        PowerState = "exited"
	PowerTerminated PowerState = "gone"
)

// DesiredState is what requests write.
type DesiredState struct {
	Power PowerState
	// Gen names a container. It grows with restart, reset, and a start after an update
	// that needs another container: a new generation has an empty disk. A start without
	// one keeps it: the same container again.
	Gen uint64
	// Run grows with every start, so that a new start can be told from the exit before it.
	Run uint64
	// Pull asks for the image to be pulled again (reset).
	Pull bool
	// Grace is how long the present stop or removal waits before it kills the processes.
	Grace time.Duration
	// Why says why the service stops the pod. Empty: its user does.
	Why string `json:",omitzero"`
	// Applied is the configuration of generation Gen.
	Applied Config
}

// ObservedState is what the loop last saw.
type ObservedState struct {
	Status  Status
	Gen     uint64 // of the container that the host accepted; 0: none
	Run     uint64
	Phase   Phase     // of that run
	Started time.Time // last start of the container; zero: never
	Reason  string    // why it is EXITED or ERROR
	Ports   []PortMapping
	CUDA    string // CUDA version of the host, empty when unknown
	IP      string // global-network address, empty when it has none
	Tries   int    // failed attempts of the present step
	RetryAt time.Time
	// Failure is the error of the last of them, at most 500 bytes. It may name what only
	// operators should see.
	Failure string `json:",omitzero"`
	// Restarts is how often in a row the container has started again by its policy, and Began when
	// it first ran since its user started it.
	Restarts int       `json:",omitzero"`
	Began    time.Time `json:",omitzero"`
	// Epoch is that of the lease of the host's server when it wrote this. A server with a smaller
	// one writes no more. It is 0 where servers share nothing.
	Epoch uint64 `json:",omitzero"`
}

// A PortMapping is a live published port. Public is 0 and IP empty when it is not
// published.
type PortMapping struct {
	Private  int // as Port has it
	Public   int
	Protocol string // as asked: tcp, udp, http
	IP       string
}

// A LogLine is one line of a log.
type LogLine struct {
	At   time.Time
	Seq  uint64 // grows within a pod and a source
	Text string
}

// HoldingOf is what new pods of one owner take together.
func HoldingOf(list []*Pod) (sum budget.Holding) {
	for _, p := range list {
		h := p.Holding()
		sum.User = h.User
		for i, a := range h.Of {
			sum.Of[i].Budget = a.Budget
			sum.Of[i].N += a.N
		}
	}
	return sum
}

// ClaimsOf is what pods claim together.
func ClaimsOf(list []*Pod) (claims []Claim) {
	for _, p := range list {
		claims = append(claims, p.Placement.Claims...)
	}
	return claims
}

// Holding is what a pod takes of its owner's budgets (docs/decisions.md 37). A pod that is being
// terminated takes nothing.
func (p *Pod) Holding() (h budget.Holding) {
	if p.Want.Power == PowerTerminated {
		return h
	}
	return budget.Holding{User: p.Owner, Of: [2]budget.Amount{
		{Budget: budget.Pods, N: 1}, {Budget: budget.PodEnvBytes, N: budget.Env(p.Config.Env) + budget.Texts(p.Name, p.Config.Image, p.Config.Args)},
	}}
}

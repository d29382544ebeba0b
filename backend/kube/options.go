package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Options are the settings of a Runtime. A Runtime is one pool of nodes.
type Options struct {
	// Instance is a label of every object that the Runtime makes, and what it finds them by. It is
	// a DNS label, and no two servers may have the same. Required.
	Instance string
	// Namespace has all objects. Empty: a namespace for each owner, which the Runtime makes.
	Namespace string
	// Nodes are labels of the nodes of this pool. Empty: all nodes.
	Nodes map[string]string
	// Tolerations are for the taints of the nodes of this pool.
	Tolerations []corev1.Toleration
	// RuntimeClass is that of every Pod, such as gvisor. Empty: that of the node.
	RuntimeClass string
	// PodSecurity is the level that namespaces of owners enforce. Default: baseline, and privileged
	// with HostPorts, because baseline allows no host ports.
	PodSecurity string
	// ServerNamespace is the namespace of the server, if it runs in the cluster: its Pods and those of
	// owners reach each other. Empty: no other Pod of the cluster comes in.
	ServerNamespace string
	// Quota is the ResourceQuota of each owner's namespace. Empty: none.
	Quota corev1.ResourceList
	// StorageClass is that of persistent mounts. Empty: the cluster's default.
	StorageClass string
	// GPUResource is the resource that the device plugin of the nodes counts. Default: nvidia.com/gpu.
	GPUResource corev1.ResourceName
	// GPUProducts are the values of the label nvidia.com/gpu.product that a GPU type of the catalog
	// has. A type without an entry runs on any node of the pool.
	GPUProducts map[string][]string
	// HostPorts is the range of the nodes' ports that pods are published at. Without it, a pod is
	// reached at its address in the cluster.
	HostPorts PortRange
	// Grace is how long a program may take to end, whatever a stop allows: the kubelet reads it when
	// the container is made. Default: 20 s.
	Grace time.Duration
	// Room is how long a Pod may wait for a node. Default: 10 s.
	Room time.Duration
	// PullPatience is how long pulls of an image may fail for reasons that can pass. Default: 2 min.
	PullPatience time.Duration
	// Logger gets what no caller is told. Default: nothing is logged.
	Logger *slog.Logger
}

// A PortRange has the ports from First to Last. The zero value has none.
type PortRange struct{ First, Last int }

func (r PortRange) empty() bool { return r == PortRange{} }

const (
	defaultGrace        = 20 * time.Second
	defaultRoom         = 10 * time.Second
	defaultPullPatience = 2 * time.Minute
	nvidiaGPU           = corev1.ResourceName("nvidia.com/gpu")
)

func (o *Options) withDefaults() Options {
	d := *o
	set(&d.Grace, defaultGrace)
	set(&d.Room, defaultRoom)
	set(&d.PullPatience, defaultPullPatience)
	set(&d.GPUResource, nvidiaGPU)
	if d.HostPorts.empty() {
		set(&d.PodSecurity, "baseline")
	}
	set(&d.PodSecurity, "privileged")
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return d
}

func set[T comparable](p *T, to T) {
	var zero T
	if *p == zero {
		*p = to
	}
}

func (o *Options) check() error {
	var errs []error
	for _, name := range []struct{ field, value string }{{"Instance", o.Instance}, {"Namespace", o.Namespace}, {"ServerNamespace", o.ServerNamespace}} {
		if name.field != "Instance" && name.value == "" {
			continue
		}
		if wrong := validation.IsDNS1123Label(name.value); len(wrong) > 0 {
			errs = append(errs, fmt.Errorf("%s %q: %s", name.field, name.value, wrong[0]))
		}
	}
	if r := o.HostPorts; !r.empty() && (r.First < 1 || r.Last < r.First || r.Last > 65535) {
		errs = append(errs, fmt.Errorf("HostPorts: %d to %d is no range of ports", r.First, r.Last))
	}
	if o.Grace < 0 || o.Room < 0 || o.PullPatience < 0 {
		errs = append(errs, errors.New("the options Grace, Room and PullPatience must not be negative"))
	}
	return errors.Join(errs...)
}

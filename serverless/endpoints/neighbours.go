package endpoints

import (
	"context"

	"github.com/podyard/podyard/problem"
)

// Interfaces to other packages, so that this package does not import them.
type (
	// A Catalog has the machines that workers can run on. It is safe for concurrent use.
	Catalog interface {
		// Flavor returns the memory in GB of a machine of a CPU flavor with this many vCPUs,
		// and 0 if the flavor has no such size. ok is false if there is no such flavor.
		Flavor(id string, vcpus int) (memoryGB int, ok bool)
		// Pool returns the ids of the GPU types in a serverless pool, and none if there is no
		// such pool.
		Pool(id string) (gpuTypes []string)
		// DataCenter reports whether there is a data center with this id.
		DataCenter(id string) bool
	}
	// Templates finds the templates of endpoints.
	Templates interface {
		// EndpointTemplate returns a template that owner may use, or an error of kind
		// problem.NotFound.
		EndpointTemplate(ctx context.Context, owner, id string) (Template, error)
	}
	// Volumes finds network volumes.
	Volumes interface {
		// Volume returns the data center of a network volume of owner, or an error of kind
		// problem.NotFound.
		Volume(ctx context.Context, owner, id string) (dataCenter string, err error)
	}
	// Admission judges what workers are made of. It is safe for concurrent use.
	Admission interface {
		// AdmitWorker adds to faults what of c an owner may not ask for, at "/args" and
		// "/env/NAME", as problem.BadRequest. The empty owner is the program itself, which
		// may ask for anything.
		AdmitWorker(owner string, c Container, faults *problem.Violations)
	}
	// Registries finds registry credentials. registries.Service implements it.
	Registries interface {
		// PullSecret returns the registry host, user name and password of a credential of
		// owner, or an error of kind problem.NotFound.
		PullSecret(ctx context.Context, owner, id string) (registry, username, password string, err error)
	}
)

package serverless

import "context"

// What endpoints need of their neighbours, without importing them.
type (
	// A Catalog knows what workers can run on. It is safe for concurrent use.
	Catalog interface {
		// Flavor is the memory in GB of a machine of this CPU flavor with so many vCPUs; 0
		// when the flavor has none of that size. ok says that there is such a flavor.
		Flavor(id string, vcpus int) (memoryGB int, ok bool)
		// Pool is the ids of the GPU types in a serverless pool; none: there is no such pool.
		Pool(id string) (gpuTypes []string)
		// DataCenter reports whether there is one with this id.
		DataCenter(id string) bool
	}
	// Templates finds what endpoints are made from.
	Templates interface {
		// EndpointTemplate returns a template that owner may use, or an error of kind
		// problem.NotFound.
		EndpointTemplate(ctx context.Context, owner, id string) (Template, error)
	}
	// Volumes finds network volumes.
	Volumes interface {
		// Volume says in which data center a volume of owner is, or an error of kind
		// problem.NotFound.
		Volume(ctx context.Context, owner, id string) (dataCenter string, err error)
	}
	// Registries finds registry credentials. registries.Service is one.
	Registries interface {
		// PullSecret returns the user name and password of a credential of owner, or an
		// error of kind problem.NotFound.
		PullSecret(ctx context.Context, owner, id string) (registry, username, password string, err error)
	}
)

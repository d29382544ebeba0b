// Package pods rents containers: GPU and CPU pods with a lifecycle, settings, mounts and live
// metrics (docs/interface.md 2).
//
// # What a program calls
//
// [New] makes a [Service] on a [PodStore], a catalog of what can be rented, and the hosts that
// pods run on. [Service.Run] brings the hosts to the desired state of the pods until its
// context ends. [Service.Create], Get, List, Update, Act and Logs are what users do with pods;
// each call names the owner and finds only the pods of that user.
//
// A [Host] is a machine with a [Runtime]. The machine that the program runs on is a host of
// backend/machine, on the runtime of backend/process or backend/docker; [SimulatedHosts] with
// the runtime of backend/memory are hosts for tests.
//
// # What a backend implements
//
//   - A [PodStore] keeps pods and their claims on hosts, which no two pods share. Its types are
//     [Pod] with [Config], [DesiredState], [ObservedState] and [Placement], [Claim],
//     [Reservation] and [Filter].
//   - A [Runtime] brings the containers of one host to the desired state. It has six methods;
//     [Runtime.Ensure] is create, start, restart, reset and recovery. Its types are [Spec],
//     [ContainerState], [Phase], [Capabilities] and [Sample]. Optional interfaces are
//     [LogReader], [Sampler], [Notifier], [Admitter] and [CUDAVersioner].
//
// Package podstest has test suites for both. All other types are for users of a Service, or are
// interfaces to other packages that [Options] names.
//
// # The life of a pod
//
//	create ──► PROVISIONING ──► STARTING ──► RUNNING
//	               │               │  ▲         │
//	               │ stop          │  │ start,  │ stop, or its container exits with 0
//	               ▼               ▼  │ reset   ▼
//	             EXITED ◄──────────────────── EXITED
//	                                  │
//	             ERROR ───────────────┘   a container that fails, is killed for its
//	                                      memory, or cannot be made or started
//
// Restart and reset lead from RUNNING to STARTING, and every status leads to TERMINATED. A pod
// is PROVISIONING until its first container runs, and STARTING at every later start, when it
// has a host already. A pod that is being stopped keeps its status until its container has
// ended and its compute is free. EXITED and ERROR mean that nothing is claimed.
//
// # Who writes what
//
// A request writes Want: a power state, a generation, a run. The loop, [Service.Run] or
// [Service.Step], reads a pod, makes the one call that brings its host nearer to the desired
// state, and writes Seen when the host reports. It reads the pod again after each change and
// each report, and when a call must be repeated. So a crash between any two of these steps is
// repaired by reading the same record again.
//
// # Several servers
//
// With [Options.Server] several programs work over one store (docs/servers.md). Each host is then
// a lease. Requests at any of them write Want, and place pods on the hosts of all. Only the
// program that has the lease of a host calls its runtime, writes Seen with the epoch of the lease,
// and deletes the record of a pod that is over: a program with a smaller epoch is refused.
//
// # Where we chose
//
// Where the schema sets no bound, more GPUs than the largest machine of a type has are a lack
// of capacity (400). Only the data centers of a request are considered, in their order. Disks
// and persistent mounts have at most [MaxStorage] GB, and a container has at most 100 ports.
// The platform's variables (RUNPOD_POD_ID and so on) override the user's. When a host has lost
// a running container, the pod is EXITED; a container that had not started is made again. A
// start after a change of settings makes another container. Variables that startSsh and
// startJupyter inject are in no answer, and the user's variables override them. A template that
// does not exist is reported before all other faults of a body. A host with an unknown CUDA
// version satisfies no constraint.
package pods

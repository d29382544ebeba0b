// Package pods rents containers: GPU and CPU pods with a life, settings, mounts and live
// metrics (docs/interface.md 2).
//
// # What a program calls
//
// [New] makes a [Service] on a [PodStore], a catalog of what can be rented, and the hosts
// that pods run on. [Service.Run] keeps the hosts at what the pods want until its context
// ends. [Service.Create], Get, List, Update, Act and Logs are what users do with pods; each
// call names the owner, and finds only the pods of that user.
//
// A [Host] is a machine with a [Runtime]. The machine that the program runs on is a host of
// backend/machine, on the runtime of backend/process or backend/docker; [SimulatedHosts]
// with the runtime of backend/memory are hosts for tests.
//
// # What a backend implements
//
//   - A [PodStore] keeps pods, and the claims of hosts that no two pods share. Its types are
//     [Pod] with [Config], [DesiredState], [ObservedState] and [Placement], [Claim],
//     [Reservation] and [Filter].
//   - A [Runtime] makes the containers of one host what they are wanted to be: six methods,
//     of which [Runtime.Ensure] is create, start, restart, reset and recovery. Its types are
//     [Spec], [ContainerState], [Phase], [Capabilities] and [Sample]. What it can do besides
//     are the interfaces [LogReader], [Sampler], [Notifier] and [CUDAVersioner].
//
// Package podstest has the rules of both as suites of tests. All other types are for users
// of a Service, and the neighbours that [Options] name.
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
// Restart and reset lead from RUNNING to STARTING, and every status leads to TERMINATED.
// A pod is PROVISIONING until its first container runs, and STARTING on every later way
// up: it has its place then. One that is to stop keeps its status until its container
// has ended and its compute is free; EXITED and ERROR mean that nothing is claimed.
//
// # Who writes what
//
// A request writes Want: a power, a generation, a run. The loop, [Service.Run] or
// [Service.Step], looks at a pod, makes the one call that brings its host nearer to what
// is wanted, and writes Seen when the host reports. It looks again after each change and
// each report, and when a call is to be repeated; so a crash between any two of these
// steps is made good by looking at the same record again.
//
// # Where we chose
//
// More GPUs than the largest machine of a type has are no capacity (400) and no fault of
// the schema, which sets no bound. The data centers of a request are the only ones that
// are considered, in their order. Disks and persistent mounts end at [MaxStorage], and a
// container has at most 100 ports. The platform's variables (RUNPOD_POD_ID and so on) win
// over the user's. A container that its host lost while it ran leaves the pod EXITED; one
// that had not started is made again. A start of a pod whose settings were changed makes
// another container. What startSsh and startJupyter inject is in no answer, and a variable
// of the user wins over it. A template that does not exist is told before anything else
// about a body. The CUDA version of a host that says none satisfies no constraint.
package pods

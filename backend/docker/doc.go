// Package docker runs pods as containers of an engine that speaks the Docker Engine
// HTTP API: Docker from 20.10 (API 1.40), or the socket of Podman's service.
//
// # Labels
//
// Open creates a random instance name and stores it in the directory of the [Runtime].
// Every container, volume and network that the Runtime creates has this name in the label
// io.podyard.instance. The Runtime never changes, stops or removes anything without this
// label.
//
//	io.podyard.instance  the instance name of the directory
//	io.podyard.pod       the pod, on containers and on local volumes
//	io.podyard.gen       the generation, on containers
//	io.podyard.run       the run for which the container was created
//	io.podyard.volume    the network volume, on volumes
//	io.podyard.gpus      on containers with GPUs: what they must have
//	io.podyard.owner     the user, on networks
//	io.podyard.alias     the name in the owner's network, on containers that have one
//
// The engine is the source of truth about a container. The directory holds what an engine
// does not know: the last run of the container, whether somebody requested its stop, and
// the public ports of the pod. A lost record is created again from the labels.
//
// # Images
//
// An image on the host is used for an owner only if its registry gives it to that owner:
// the image is pulled again, which fetches the manifest and no layers that the host has.
// The answer is remembered for Options.ImageRecheck. If the registry does not answer, the
// pod fails with the reason. Options.Trusted and Options.LocalImages are the exceptions. An
// image id is not accepted as a name.
//
// The directory has a list of the images that a Runtime pulled. Such an image is removed
// when no container had it for Options.ImageAge, or when the engine's disk is short of
// space. An image that somebody else pulled, built or named on the host is kept.
//
// # Containers
//
// The environment is that of the image, then Spec.Env, then these variables:
//
//	PODYARD_POD_ID              the pod
//	RUNPOD_PUBLIC_IP            the address that ports are published on, if there are any
//	RUNPOD_TCP_PORT_<private>   the public number of a tcp or http port
//	RUNPOD_UDP_PORT_<private>   the same for a udp port
//
// Entrypoint replaces the ENTRYPOINT of the image and drops its CMD, Args replace the CMD. Ports are published on free
// ports of Options.Host. The pod keeps its public ports as long as it exists, unless
// another program takes one meanwhile. Memory is a limit without swap. A vCPU is a weight
// and a limit; the limit never exceeds the cores of the host. Local mounts are named
// volumes that Remove deletes. Network volumes are named volumes that stay until
// [Runtime.RemoveVolume]. The sizes of volumes are not enforced. The size of the
// container's disk is enforced if the storage driver can do that: see [pods.Capabilities]
// and the log of Open. With containerd's image store, the default of a new Docker 29,
// Docker accepts a size and ignores it. Where the driver cannot, the engine is asked what a
// container has written, and one with more than its disk is ended: some seconds late, and
// later if it has many files. Volumes that the image declares count. Inodes do not.
//
// Container processes have the engine's default capabilities without Options.CapDrop. They
// cannot gain privileges (no_new_privs). The engine's seccomp profile filters their system
// calls. A container keeps running when the server stops or crashes. The engine never
// restarts a container by itself.
//
// # Networks
//
// Every owner has a network with a block of Options.Subnet. It is created with the owner's
// first container and removed with the last one. After a restart it is found again. The
// engine's DNS resolves Spec.NetworkAlias in it. Connections to the outside work as in the
// engine's default network.
//
// Docker isolates networks by rules of iptables or nftables. A Docker with rules switched
// off (iptables false) isolates nothing, and its API does not report that. Podman needs
// netavark, and aardvark-dns for names. With another network backend, all containers are in
// Podman's default network, there are no private networks, and Open logs this.
//
// Netavark with iptables (the only backend before version 1.10) loses the isolation when
// the last container of a network ends, until the next container starts. A Runtime repairs
// this within about a second when one of its own containers ends. It does not see other
// containers end. Netavark with nftables does not have this gap. Podman 4 also loses the
// isolation when somebody lists its networks by its Docker API. The firewall rules below
// have neither gap.
//
// # Firewall rules
//
// With root, the program nft and an engine on this machine, a Runtime keeps an nftables
// table with rules for its networks. The rules reject connections from a container to
//
//   - this machine, except Options.Reachable, the name server of the network, and
//     published ports on Options.Host unless that is a loopback address;
//   - metadata addresses of clouds, link-local addresses and Options.Deny, except port
//     53 of the name servers in /etc/resolv.conf, because some clouds use such
//     addresses for them;
//   - networks of other owners, and IPv6.
//
// The table exists before the first container starts. It is removed with the last network.
// If the Runtime is closed while containers run, the table stays. If somebody changes or
// removes it, the Runtime sets it again within 10 s, and before the next start of a
// container. A start fails if the rules cannot be set. [Runtime.Missing] lists the
// isolation that this host lacks; Options.Isolation can make that an error.
//
// # Health
//
// If the image has a HEALTHCHECK, the container is healthy when the check succeeds. The
// engine runs the check. With Podman, which leaves it to systemd, this package runs it. A
// container without a check is healthy when it runs. A healthy container stays healthy
// until it ends.
//
// # Exit
//
// A stop sends the image's stop signal to the first process, and SIGKILL after the grace
// period. An exit counts as out of memory if the engine says so and nobody requested the
// stop. Podman 4 does not report it: with Podman, exit code 137 counts as out of memory if
// the pod has a memory limit.
//
// # GPUs
//
// A device in pods.Spec is a GPU's UUID. Its name in the Container Device Interface (CDI)
// is nvidia.com/gpu=UUID: a specification made by nvidia-ctk must name devices by UUID,
// which newer versions do by default. A pod with a number of GPUs but no devices fails,
// because an engine that gets only a number gives the same GPUs to everybody. At Open, the
// engine's report decides which method is used:
//
//	Podman                               CDI, resolved by Podman. The container is created
//	                                     by Podman's own API: its Docker API cannot express
//	                                     CDI and, in version 4, ignores device requests
//	Docker that knows CDI                CDI, resolved by Docker, unless NVIDIA's toolkit
//	                                     is there and CDI has found no GPUs. Docker 25
//	                                     must be configured for CDI; 28.5 knows it by default
//	Docker with NVIDIA's toolkit         a device request for the driver "nvidia"
//	Docker with neither, on this machine CDI, resolved by this package from Options.CDIDirs
//
// The last method passes device nodes, bind mounts, environment and groups to Docker. The
// Docker API cannot express hooks, Intel RDT, network interfaces, and nodes with their own
// owner or mode. A specification that needs them is refused. Specifications made by
// nvidia-ctk need hooks, so this method is for specifications without hooks. A machine with
// nvidia-ctk also has the toolkit.
//
// A pod that did not get its GPUs fails with the reason and does not run. The package
// checks what the engine reports about the container: device requests and nodes before the
// start, and with Podman the nodes after the start. Docker does not start a container with
// a device that CDI does not know or whose nodes are missing. This package refuses a device
// that CDI describes without nodes. Capabilities report GPUs if one of these methods worked
// at Open. As Docker's default runtime, NVIDIA's toolkit would give all GPUs to a container
// whose environment asks for them. So pods that do not get their GPUs from the toolkit run
// with NVIDIA_VISIBLE_DEVICES=void.
//
// # Connection to the engine
//
// While the engine does not answer, List and Watch return errors, and accepted work waits.
// When the engine answers again, every container is inspected, and interrupted calls are
// repeated. Repeating a call is safe, because names of containers and volumes follow from
// the pod.
//
// Docker ends containers when it stops, unless it has live-restore. Such a pod is HostWent. Docker
// tells of that as of a docker stop by somebody else, some seconds before it is gone, so the end of a
// container that somebody else stops is shown 20 s later. With live-restore nothing is awaited.
//
// # Tested engines
//
// The tests of this package ran on these engines, on Linux 6 with cgroup version 1:
//
//	Docker 20.10.24             API 1.41   overlay2; CDI resolved here
//	Docker 25.0.6               API 1.44   overlay2; CDI resolved here, and by Docker
//	Docker 28.5.2               API 1.51   overlay2, containerd's image store; CDI resolved by Docker
//	Docker 29.8, as the module  API 1.56   overlay2, containerd's image store; iptables, nftables;
//	moby/v2 v2.0.0-beta.24                 CDI resolved by Docker
//	Podman 4.3.1, netavark 1.4             iptables; CDI resolved by Podman
//
// The first engine had containerd 1.6.20, the other Dockers had 2.2.9. The first engine and
// Podman had runc 1.1.5, the others 1.3.6. Docker 29.8 starts no containers with runc
// 1.1.5.
package docker

// Package docker runs pods as containers of an engine that speaks the Docker Engine
// HTTP API: Docker from 20.10 (API 1.40), or the socket of Podman's service.
//
// # What belongs to it
//
// A [Runtime] has a directory, and in it a random name of its own. Every container,
// volume and network that it makes bears that name in the label io.podyard.instance.
// Whatever does not bear it is never looked at, stopped or removed.
//
//	io.podyard.instance  the directory
//	io.podyard.pod       the pod, on containers and on volumes that die with it
//	io.podyard.gen       the generation, on containers
//	io.podyard.run       the run that the container was made for
//	io.podyard.volume    the network volume, on volumes
//	io.podyard.gpus      on containers with GPUs: how to see that they arrived
//	io.podyard.owner     the user, on networks
//	io.podyard.alias     the name in the network of the owner, on containers that have one
//
// The engine has the truth about a container. The directory holds what an engine cannot
// say: which run of the container is the last, whether its end was asked for, and the
// public ports of the pod. A record that is lost is made again from the labels.
//
// # Images
//
// An image that is on the host is used for an owner only when its registry gives it to that
// owner: it is pulled again, which fetches the manifest and nothing that is there. The
// answer is remembered for Options.ImageRecheck. A registry that does not answer gives
// nothing, and the pod fails with the reason. Options.Trusted and Options.LocalImages are
// the exceptions. Ids of images are no names of images.
//
// Images that a Runtime pulled, which its directory remembers, are removed when no container
// had them for Options.ImageAge, or when the engine's disk is short of room. An image that
// somebody else brought to the host or named there stays.
//
// # What a container gets
//
// Its environment is that of the image, then Spec.Env, then these variables.
//
//	PODYARD_POD_ID              the pod
//	RUNPOD_PUBLIC_IP            the address that ports are published on, if there are any
//	RUNPOD_TCP_PORT_<private>   the public number of a tcp or http port
//	RUNPOD_UDP_PORT_<private>   the same for a udp port
//
// Args replace the CMD of the image; its ENTRYPOINT stays. Ports are published on free
// ports of Options.Host. The pod keeps them as long as it exists, unless another
// program has taken one meanwhile. Memory is a limit without swap. A vCPU is a weight
// and a limit, which never exceeds what the host has. Local mounts are named volumes
// that Remove destroys. Network volumes are named volumes that stay until
// [Runtime.RemoveVolume]. Their sizes are not enforced. The size of the container's
// disk is enforced where the storage driver can do that: [pods.Capabilities] and the
// log at Open say whether it does. With containerd's image store, the default of a new
// Docker 29, Docker accepts a size and ignores it.
//
// Container processes have the engine's default capabilities without those of
// Options.CapDrop, cannot gain rights (no_new_privs), and make only the system calls that
// the engine's seccomp profile lets them. A container keeps running when the server ends, and when it crashes.
// The engine never restarts one by itself.
//
// # Networks
//
// Every owner has a network, with a block of Options.Subnet. It is made with the owner's first
// container, removed with the last, and found again after a restart. The engine's DNS
// resolves Spec.NetworkAlias there. The network leads out as the engine's default network
// does.
//
// Docker isolates networks by rules of iptables or nftables. A Docker that is set to make
// none (iptables false) isolates nothing, and does not say so. Podman needs netavark, and
// aardvark-dns for the names. With another network backend all containers are in Podman's
// default network, which the log says at Open, and there are no private networks. Netavark
// with iptables (its only way before version 1.10) loses the isolation when the last
// container of a network ends, until the next one starts. A Runtime that sees the end of one
// of its containers repairs that within about a second. It does not see the ends of other
// containers. Netavark with nftables has no such gap. Podman 4 forgets the isolation, too,
// when somebody lists its networks by its Docker API. The firewall rules below have neither
// gap.
//
// # Firewall rules
//
// A Runtime that may, which takes root, the program nft and an engine on this machine, keeps
// a table of nftables with rules for its networks. From a container they refuse
//
//   - this machine, but for Options.Reachable, the name server of the network, and published
//     ports on Options.Host unless that is a loopback address;
//   - metadata addresses of clouds, link-local ones and Options.Deny, but for port 53 of the
//     name servers in /etc/resolv.conf: some clouds have them there;
//   - networks of other owners, and IPv6.
//
// The table is there before the first container starts and goes with the last one. It stays
// when the Runtime is closed and containers go on. Who changes or removes it has it set again
// within 10 s, and before the next start of a container. A start whose rules cannot be set
// fails. [Runtime.Missing] says what cannot be had; Options.Isolation makes that an error.
//
// # Health
//
// A container whose image has a HEALTHCHECK is healthy when that succeeds. The engine
// runs the check, or this package where the engine does not (Podman leaves it to
// systemd). A container without one is healthy when it runs. A container that was
// healthy stays so until it ends.
//
// # The end
//
// A stop sends the image's stop signal to the first process, and SIGKILL after the
// grace. Exit code 137 that nobody asked for is out of memory when the engine says so.
// Podman 4 does not say it: there it counts as out of memory when the pod has a memory
// limit.
//
// # GPUs
//
// A device of pods.Spec is its UUID, and nvidia.com/gpu=UUID for the Container Device
// Interface (CDI): a specification made by nvidia-ctk has to name devices by UUID, as
// its newer versions do by default. GPUs that the host only counts are not handed over,
// because an engine that is told a number gives the same GPUs to everybody. Which way a
// container gets its GPUs follows from what the engine says of itself at Open.
//
//	Podman                               CDI, resolved by Podman: the container is made by
//	                                     Podman's own API, because its Docker API cannot
//	                                     express it and, in version 4, ignores requests
//	Docker that knows CDI                CDI, resolved by Docker, unless NVIDIA's toolkit
//	                                     is there and CDI has found no GPUs. Docker 25
//	                                     knows it when it is configured, 28.5 by default
//	Docker with NVIDIA's toolkit         a device request for the driver "nvidia"
//	Docker with neither, on this machine CDI, resolved here from Options.CDIDirs
//
// What is resolved here becomes device nodes, bind mounts, environment and groups. The
// Docker API cannot express hooks, Intel RDT, network interfaces, and nodes with an
// owner or a mode of their own. A specification that needs them is refused, and those
// that nvidia-ctk makes do need hooks. So this way is for devices that are described
// without hooks; a machine that has nvidia-ctk has the toolkit, too.
//
// A pod whose GPUs did not arrive fails with the reason and does not run. The package
// looks at what the engine shows of the container: device requests and nodes before the
// start, and with Podman the nodes after it. Docker does not start a container with a
// device that CDI does not know or whose nodes are missing; a device that CDI describes
// without nodes is refused here. Capabilities report GPUs when one of these ways worked
// at Open. Where the engine has NVIDIA's toolkit, pods that do not get their GPUs by it
// cannot ask it for GPUs in their environment: as Docker's default runtime it would
// give them all there are.
//
// # An engine that goes away
//
// While the engine does not answer, List and Watch return errors, and what was accepted
// waits. When it answers again, every container is looked at. A call that broke off is
// repeated, which does no harm: names of containers and volumes follow from the pod.
//
// # Tested engines
//
// The tests of this package ran on these engines, on Linux 6 with control groups
// version 1:
//
//	Docker 20.10.24             API 1.41   overlay2; CDI resolved here
//	Docker 25.0.6               API 1.44   overlay2; CDI resolved here, and by Docker
//	Docker 28.5.2               API 1.51   overlay2, containerd's image store; CDI resolved by Docker
//	Docker 29.8, as the module  API 1.56   overlay2, containerd's image store; iptables, nftables;
//	moby/v2 v2.0.0-beta.24                 CDI resolved by Docker
//	Podman 4.3.1, netavark 1.4             iptables; CDI resolved by Podman
//
// The first had containerd 1.6.20, the other Dockers 2.2.9; runc was 1.1.5 with the
// first and with Podman, else 1.3.6. Docker 29.8 starts nothing with runc 1.1.5.
package docker

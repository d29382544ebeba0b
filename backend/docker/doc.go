// Package docker runs pods as containers of an engine that speaks the Docker Engine HTTP
// API: Docker from 20.10 (API 1.40), or the socket of Podman's service.
//
// # What belongs to it
//
// A [Runtime] has a directory, and in it a name of its own, made at random. Every
// container, volume and network bears that name in the label io.podyard.instance. Nothing without
// it is ever looked at, stopped or removed.
//
//	io.podyard.instance  the directory
//	io.podyard.pod       the pod, on containers and on volumes that die with it
//	io.podyard.gen       the generation, on containers
//	io.podyard.run       the run that the container was made for
//	io.podyard.volume    the network volume, on volumes
//	io.podyard.gpus      on containers with GPUs, by what it is seen that they arrived
//	io.podyard.owner     the user, on networks
//
// The truth about a container is the engine's. The directory holds what an engine cannot
// say: which run of the container is the last, whether its end was asked for, and the
// public ports of the pod. A record that is lost is made again from the labels.
//
// # What a container gets
//
// Its environment is that of the image, then Spec.Env, then what is listed here.
//
//	PODYARD_POD_ID              the pod
//	RUNPOD_PUBLIC_IP            the address that ports are published on, if there are any
//	RUNPOD_TCP_PORT_<private>   the public number of a tcp or http port
//	RUNPOD_UDP_PORT_<private>   the same for a udp port
//
// Args take the place of the image's CMD; its ENTRYPOINT stays. Ports are published on
// free ports of Options.Host, which the pod keeps while it exists, unless another program
// has taken one meanwhile. Memory is a limit without swap; a vCPU is a weight and a limit,
// which never exceeds what the host has. Local mounts are named volumes that Remove
// destroys; network volumes are named volumes that stay until [Runtime.RemoveVolume].
// Their sizes are not enforced. The size of the container's disk is enforced where the
// storage driver can: [pods.Capabilities] and the log at Open say whether it does. With
// containerd's image store, the default of a new Docker 29, Docker takes a size and forgets it.
//
// Container processes have the engine's default capabilities less Options.Drop. A container
// keeps running when the server ends, and when it dies; the engine never starts one again
// by itself.
//
// # Private networks
//
// A pod with Spec.Network is in the network of its owner and in no other. That network is
// made with the first such pod and removed with the last; the engine's DNS knows the pod
// there by Spec.Network. It leads out as the engine's default network does. Pods without
// Spec.Network are in the default network of Docker, where they see each other. On Podman
// they are in one of ours: its default network is not kept apart from others.
//
// Docker keeps networks apart by rules of iptables or nftables. One that is set to make none
// (iptables false) keeps nothing apart, and does not say so. It has addresses for about
// thirty networks unless it is set to have more. Podman takes netavark, and aardvark-dns for the
// names; with another network backend there are no private networks. Netavark with iptables
// (its only way before version 1.10) forgets to keep networks apart when the last container
// of one of them ends, until the next one starts. A Runtime that sees the end of one of its
// containers makes up for that within a second or so; of ends that are none of its own it
// does not know. Netavark with nftables has no such gap.
//
// # Health
//
// A container whose image has a HEALTHCHECK is Up once that succeeds; the engine runs it,
// or this package where the engine does not (Podman leaves it to systemd). One without is
// Up when it runs. A container that was Up stays so until it ends.
//
// # The end
//
// A stop sends the image's stop signal to the first process, and SIGKILL after the grace.
// Exit code 137 that nobody asked for is OOM when the engine says so. Podman 4 does not:
// there it counts as OOM when the pod has a memory limit.
//
// # GPUs
//
// A device of pods.Spec is its UUID, and nvidia.com/gpu=UUID for the Container Device
// Interface (CDI): a specification made by nvidia-ctk has to name devices by UUID, as its
// newer versions do by default. GPUs that the host only counts are not handed over: an
// engine that is told a number has the same ones for everybody. Which way a container gets
// its GPUs follows from what the engine says of itself at Open.
//
//	Podman                               CDI, resolved by Podman: the container is made by
//	                                     Podman's own API, because its Docker API has no
//	                                     words for it and, as version 4, ignores requests
//	Docker that knows CDI                CDI, resolved by Docker, unless NVIDIA's toolkit
//	                                     is there and CDI has found no GPUs. Docker 25
//	                                     knows it when it is told to, 28.5 by itself
//	Docker with NVIDIA's toolkit         a device request for the driver "nvidia"
//	Docker with neither, on this machine CDI, resolved here from Options.CDIDirs
//
// What is resolved here comes to device nodes, bind mounts, environment and groups. The
// Docker API has no words for hooks, Intel RDT, network interfaces, and nodes with an owner
// or a mode of their own: a specification that needs them is refused, and those that
// nvidia-ctk makes do need hooks. So this way is for devices that are described without;
// a machine that has nvidia-ctk has the toolkit, too.
//
// A pod whose GPUs did not arrive is Failed, with the reason, and does not run. What is
// looked at is what the engine shows of the container: device requests and nodes before it
// is started, and with Podman, which shows them then, the nodes once it is. Docker does not
// start a container with a device that CDI does not know or whose nodes are not there; one
// that CDI describes without nodes is refused here. Capabilities
// say that there are GPUs when one of these ways led to any at Open. Where the engine has
// NVIDIA's toolkit, pods that do not get their GPUs by it are kept from asking it for some in
// their environment: as Docker's default runtime it would give them all that there are.
//
// # An engine that goes away
//
// While the engine does not answer List and Watch return errors, and what was accepted
// waits. When it answers again every container is looked at. A call of the engine that
// broke off is repeated, and does no harm: names of containers and volumes follow from the
// pod.
//
// # What it was run on
//
// The tests of this package ran on these engines, on Linux 6 with control groups of the
// first version:
//
//	Docker 20.10.24             API 1.41   overlay2; CDI resolved here
//	Docker 25.0.6               API 1.44   overlay2; CDI resolved here, and by Docker
//	Docker 28.5.2               API 1.51   overlay2, containerd's image store; CDI resolved by Docker
//	Docker 29.8, as the module  API 1.56   overlay2, containerd's image store; iptables, nftables;
//	moby/v2 v2.0.0-beta.24                 CDI resolved by Docker
//	Podman 4.3.1, netavark 1.4             iptables; CDI resolved by Podman
//
// The first had containerd 1.6.20, the other Dockers 2.2.9; runc was 1.1.5 with the first
// and with Podman, else 1.3.6. Docker 29.8 starts nothing with runc 1.1.5.
package docker

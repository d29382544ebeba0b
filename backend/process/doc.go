// Package process runs pods as processes of this machine. An image is a name for a program of the
// configuration. It needs no container engine. A Runtime of this package is used in a pods.Host,
// with a catalog like catalog.Local.
//
// Images are programs of the operator for people whom the operator trusts: for the owners of
// Options.Trusted and of Image.Users. Code of strangers belongs in containers. What users may set
// is in Image.AllowEnv and Image.AllowArgs; variables that decide what loaders, shells,
// interpreters and common libraries do are never a user's. docs/security.md says what a pod can
// do.
//
// # Isolation
//
// With Options.Isolation this program is started again for each pod, with Isolation.Launch, and
// its main function calls [LaunchPod]. The new process is the pod's supervisor: it starts the
// pod's program, reads its output from a pipe, ends everything of it with it, and records its
// exit code. A pod outlives a killed server, and [Open] adopts it. [Runtime.Close] ends all pods.
// On Linux the program runs in bubblewrap where that works ([Runtime.Isolation]), as
// Isolation.User where the server is root, without capabilities and new privileges, and in cgroups
// with the limits Spec.Memory and Isolation.Processes where the server may make some. A pod whose
// supervisor is killed ends too, without bubblewrap and cgroups its process group; its exit code is
// then -1. Where the server was killed with it, the group is ended by the next Open if its first
// process lives or, on Linux, if a process in it has PODYARD_POD_ID of the pod: the number may be
// another program's by then.
//
// Without Options.Isolation, and on Windows, the server itself supervises its pods, with the
// rights of the server. They end with it: after a kill, at the next Open at the latest.
//
// What a pod has on its disk, its TMPDIR and its mounts with a size is measured every 5 seconds or
// more rarely, in bytes and in files. A pod that has more fails. What is removed goes into a
// trash, which is emptied in the background.
//
// # What a pod sees
//
// Its environment is a small base (PATH, HOME, TMPDIR, USER, LOGNAME), then that of its image,
// then Spec.Env, then what is listed here; nothing of the server's own environment but PATH.
//
//	PODYARD_POD_ID              the pod
//	PODYARD_MOUNT_<n>           the real directory of the mount n of Spec.Mounts, from 0
//	PODYARD_MOUNT_<n>_PATH      the path that was asked for it
//	PORT                        the number to listen on for the first port: http and tcp first
//	PODYARD_TCP_PORT_<private>  the number to listen on for a tcp or http port, and its public one
//	PODYARD_UDP_PORT_<private>  the same for a udp port
//	RUNPOD_TCP_PORT_<private>   as PODYARD_TCP_PORT_<private>
//	RUNPOD_PUBLIC_IP            the address that ports are published on, if there are any
//	CUDA_VISIBLE_DEVICES        the GPUs of Spec.Devices, or none
//	NVIDIA_VISIBLE_DEVICES      the same
//
// Nothing is forwarded: the process listens on the public port itself, at the address of
// RUNPOD_PUBLIC_IP. Ports are chosen free and kept while the pod exists, unless another program
// has taken one meanwhile: then that one changes at the next start. There are no private networks:
// a pod that is to join one fails.
//
// Its disk is a directory, which is its working directory (unless the image has one) and its HOME.
// It is wiped for another generation.
//
// A pod with devices is shown these, in the order of Spec.Devices. With Options.GPUs a pod without
// devices is shown none, and one whose devices are not there fails. In bubblewrap it also has the
// device files of its GPUs only.
//
// # Health and the end
//
// A pod with tcp or http ports is in PhaseHealthy when the first of them accepts a connection, or after
// Options.ReadyTimeout in any case. A pod without is so once it has run for 100 ms.
//
// A stop sends SIGTERM to the process group of the pod's first process. When that process has
// ended, as that of a container, everything else of the pod is killed at once; when the grace is
// over it is killed too. On systems without Linux's reaper of orphans a process that leaves the
// group is not found. On Windows a stop sends CTRL_BREAK,
// and the pod is a job object: all that it starts ends with it, and with a server that is killed.
package process

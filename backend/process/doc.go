// Package process runs pods as processes of this machine: an image is a name that the
// configuration gives to a command. It needs no container engine and gives no isolation
// either: a pod runs as the user of the server, sees its files and its network, and what
// it is kept from is kept from it by that user's rights alone. It is for development,
// for tests, and for hosts whose pods are all one's own. A pods.Host with a Runtime of
// this package, and a catalog like that of catalog.Local, make a pods.Service of it.
//
// # What a pod sees
//
// Its environment is a small base (PATH, HOME, TMPDIR), then that of its image, then
// Spec.Env, then what is listed here; nothing of the server's own environment but PATH.
//
//	PODYARD_POD_ID              the pod
//	PODYARD_MOUNT_<n>           the real directory of the mount n of Spec.Mounts, from 0
//	PODYARD_MOUNT_<n>_PATH      the path that was asked for it
//	PORT                        the number to listen on for the first port: http and tcp first
//	PODYARD_TCP_PORT_<private>  the number to listen on for a tcp or http port, and its public one
//	PODYARD_UDP_PORT_<private>  the same for a udp port
//	RUNPOD_TCP_PORT_<private>   as PODYARD_TCP_PORT_<private>
//	RUNPOD_PUBLIC_IP            the address that ports are published on, if there are any
//	CUDA_VISIBLE_DEVICES        the GPUs of Spec.Devices, or none: see below
//	NVIDIA_VISIBLE_DEVICES      the same
//	PODYARD_MARK                a random word by which the processes of one start are found
//
// Nothing is forwarded: the process listens on the public port itself, at the address of
// RUNPOD_PUBLIC_IP. Ports are chosen free and kept while the pod exists, unless another
// program has taken one meanwhile: then that one changes at the next start.
//
// Its disk is a directory, which is its working directory (unless the image has one) and
// its HOME. It is wiped for another generation. Sizes are not enforced.
//
// # GPUs
//
// A pod with devices is shown these, in the order of Spec.Devices, and a program that uses
// GPUs in the usual way sees no other; one that clears its environment does. With
// Options.GPUs a pod without devices is shown none, and one whose devices are fewer than
// it is to have, or not there, fails. A pod that is to have GPUs of a host where they have
// no names, as those of a made-up stock, is shown what the host has.
//
// # Private networks
//
// There are none: a pod that is to join one fails.
//
// # Health
//
// A pod with tcp or http ports is Up when the first of them accepts a connection, or
// after Options.Ready in any case: a program may open its port late or never. A pod
// without is Up once it has run for Options.Settle.
//
// # The end
//
// A stop sends SIGTERM to the process group of the pod's first process. When that
// process has ended, as that of a container, everything else that belongs to the pod is
// killed at once; when the grace is over it is killed too. What belongs to a pod is found
// by its session, by PODYARD_MARK in the environment, and as a descendant of either. A
// program that leaves the session, clears its environment and loses its parent is not
// found: holding such a one takes a control group, hence a container engine.
//
// The library does not make the server a child subreaper (PR_SET_CHILD_SUBREAPER): that
// holds for the whole embedding program, which would have to reap children that are none
// of its own. Nor does it use a parent-death signal: it fires when the thread that forked
// ends, which in Go is any moment, and a pod must outlive its server's crash.
//
// # A server that dies
//
// Pods outlive a crash of the server. [Open] recognises them by process id and start time
// and goes on watching them; their output is complete, because they write to a file and
// not to a pipe. The exit code of such an adopted process goes to its new parent, not to
// us: its State is Down with ExitCode -1 and a Reason that says so. Lines written while
// no server was there bear the time at which they were read. [Runtime.Close] in turn ends
// all pods.
//
// Orphans of pods go to process 1, which has to reap them. A server that is process 1 of
// a container does not: such a container wants an init.
//
// # Systems
//
// All of this holds on Linux. On other systems descendants are found by process group
// only, pods that outlived their server are not recognised (they are Down, and running
// processes are left alone), nothing is measured, and output is given back to the file
// system only at the next start of the pod. On Windows a stop is a kill, of the first
// process only.
package process

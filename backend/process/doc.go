// Package process runs pods as processes of this machine. An image is a name for a command of
// the configuration. It needs no container engine. A Runtime of this package is used in a
// pods.Host, with a catalog like catalog.Local.
//
// The operator of the host chooses the images. A pod runs with the host's files, libraries and
// network. Two settings decide what a user can do with it: what users may set (Image.AllowEnv,
// Image.AllowArgs), and what the process cannot reach (Options.Isolation). Without isolation a
// pod runs as the user of the server and sees everything that this user sees. That is for
// development, for tests, and for hosts without foreign pods.
//
// # What users may set
//
// Users may set neither variables nor args unless the image allows it. A Runtime is a
// pods.Admitter: a request for a pod or an endpoint is refused with the name of the variable. A
// pod that was stored before the rule fails when it starts. Users may never set variables that
// decide what loaders, shells, interpreters and common libraries do (LD_PRELOAD, PYTHONPATH,
// NODE_OPTIONS, HTTPS_PROXY, ...), whatever AllowEnv says. The owner "", which is the program
// itself, and the owners of Options.Trusted may set everything.
//
// This package does not know what a program does with an argument or a variable. AllowArgs for
// a shell lets users run any command.
//
// # Isolation
//
// With Options.Isolation this program is started again for each pod, with Isolation.Launch, and
// its main function calls [LaunchPod]. LaunchPod gives up its rights and then becomes the pod's
// program, under the same process id. What it can give up depends on the host: Open tries it,
// and logs once what the host lacks ([Runtime.Missing]). If a step that worked at Open fails
// for a pod, that pod fails. It never runs with less isolation.
//
// On every Linux host:
//
//   - The pod and all that it starts gain no privileges, by setuid programs or by capabilities
//     of files (no_new_privs), have no capabilities and leave no core files.
//   - Its disk, its TMPDIR and its mounts with a size are measured every 5 seconds, more rarely
//     where that takes long. A pod that has more than Spec.Disk, or more in a mount than its
//     size, is ended and fails. Files that were removed and are still open are not counted.
//     Between two measurements only the disk of the host limits a pod.
//
// Where the kernel has Landlock (5.13 and later), root or not:
//
//   - In the directory of the Runtime and in Isolation.Hide it reads its own disk, TMPDIR and
//     mounts only.
//   - It writes to these, to devices and to Isolation.Writable only. Elsewhere it reads what
//     its user may read. On a host without mount namespaces, directories above a hidden path
//     cannot be listed, and files made in them after the start of the pod cannot be read.
//   - It sees the memory and the environment of no process but its own (ptrace), and from
//     kernel 6.12 on it signals no other and reaches no abstract socket of others.
//
// Where the server is root:
//
//   - With Isolation.UIDs each owner has a user and a group of its own, which are recorded in
//     the directory of the Runtime before a process gets them. A number goes to another owner
//     only when all others are taken, no process, disk or volume of it is left, and it never
//     ran without Landlock. All pods of an owner have the same user.
//   - A pod of an image with User runs as that user, which then belongs to one owner only.
//   - It has its own mount namespace: hidden paths are not there, and /proc shows its own
//     processes only. The data directory may be in a directory that is closed to others, such
//     as /root.
//   - With UIDs, and where the program nft may set firewall rules: a pod opens connections to no
//     address where clouds serve metadata, to none of Isolation.Deny, and to none of this
//     machine but those of Isolation.Reachable, those of name servers at port 53, and TCP
//     services of its own user. Its own services are those of all pods of its owner, on any
//     port. A connection to another service of this machine is refused after a second, and a
//     UDP packet at once. The rules are in a table of their own, are checked before each start
//     and every 10 seconds, and are removed by Close. They make the kernel track the
//     connections of the machine.
//   - Without UIDs a pod is root without any capability. It owns what root owns, and only
//     Landlock protects that. Use UIDs for users whom you do not trust.
//
// Where the server may make cgroups, as root or in a delegated one (Isolation.Cgroup):
//
//   - Everything that a pod starts ends with it, by cgroup.kill, also processes that try to
//     hide.
//   - It has at most Isolation.Processes processes and threads, and Spec.Memory of memory.
//     Beyond that memory it is killed, and its state has OOM. Controllers that version 2 lacks
//     are used in version 1. Without cgroups but with UIDs, all pods of an owner together have
//     at most Isolation.Processes (RLIMIT_NPROC), and memory has no limit.
//
// Without firewall rules the network is not isolated: a pod reaches what the server's machine
// reaches, also services on loopback and metadata addresses. An image with User has no rules,
// because its user may be that of other programs, too. A pod may read what every user of the host may read. The
// system shares CPU and bandwidth. Use containers where that is not enough.
//
// # What a pod sees
//
// Its environment is a small base (PATH, HOME, TMPDIR), then that of its image, then Spec.Env,
// then what is listed here; nothing of the server's own environment but PATH.
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
// RUNPOD_PUBLIC_IP. Ports are chosen free and kept while the pod exists, unless another program
// has taken one meanwhile: then that one changes at the next start.
//
// Its disk is a directory, which is its working directory (unless the image has one) and its
// HOME. It is wiped for another generation. Sizes are enforced with Isolation only.
//
// # GPUs
//
// A pod with devices is shown these, in the order of Spec.Devices, and a program that uses GPUs
// in the usual way sees no other; one that clears its environment does. With Options.GPUs a pod
// without devices is shown none, and one whose devices are fewer than it is to have, or not
// there, fails. A pod that is to have GPUs of a host where they have no names, as those of a
// made-up stock, is shown what the host has.
//
// # Private networks
//
// There are none: a pod that is to join one fails.
//
// # Health
//
// A pod with tcp or http ports is Up when the first of them accepts a connection, or after
// Options.ReadyTimeout in any case: a program may open its port late or never. A pod without is
// Up once it has run for Options.MinReadyTime.
//
// # The end
//
// A stop sends SIGTERM to the process group of the pod's first process. When that process has
// ended, as that of a container, everything else that belongs to the pod is killed at once;
// when the grace is over it is killed too. What belongs to a pod is found by its session, by
// PODYARD_MARK in the environment, and as a descendant of either. A program that leaves the
// session, clears its environment and loses its parent is not found, unless the pod has a
// cgroup: see Isolation.
//
// The library does not make the server a child subreaper (PR_SET_CHILD_SUBREAPER): that holds
// for the whole embedding program, which would have to reap children that are none of its own.
// Nor does it use a parent-death signal: it fires when the thread that forked ends, which in Go
// is any moment, and a pod must outlive its server's crash.
//
// # A server that dies
//
// Pods outlive a crash of the server. [Open] recognises them by process id and start time and
// goes on watching them; their output is complete, because they write to a file and not to a
// pipe. The exit code of such an adopted process goes to its new parent, not to us: its State
// is Down with ExitCode -1 and a Reason that says so. Lines written while no server was there
// bear the time at which they were read. [Runtime.Close] in turn ends all pods.
//
// Orphans of pods go to process 1, which has to reap them. A server that is process 1 of a
// container does not: such a container wants an init.
//
// # Systems
//
// All of this holds on Linux. On other systems nothing isolates pods but the limits of disks,
// descendants are found by process group only, pods that outlived their server are not
// recognised (they are Down, and running processes are left alone), nothing is measured, and
// output is given back to the file system only at the next start of the pod. On Windows a stop
// is a kill, of the first process only.
package process

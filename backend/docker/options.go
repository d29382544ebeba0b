package docker

import (
	"log/slog"
	"net/netip"
	"time"

	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// Options configures a Runtime. A zero field has its default.
type Options struct {
	// Engine is the address of the engine in the format of DOCKER_HOST:
	// unix:///run/docker.sock. Default: [Address]. The environment says how (DOCKER_TLS_VERIFY,
	// DOCKER_CERT_PATH).
	Engine string
	// Host is the address of this machine on which ports are published. Default 127.0.0.1.
	Host netip.Addr
	// Trusted reports whether pods of owner may use every image on the host without asking
	// a registry, as those of the operator may. Nil: only pods without an owner may, which
	// belong to the program itself. It must be safe for concurrent use.
	Trusted func(owner string) bool
	// LocalImages are images that everybody may use as they are on the host, without asking
	// a registry: for example, images that were built there. An entry is a name in which a
	// star matches any text. An entry without a tag matches all tags. An image that is not
	// on the host is pulled. Default: none. Then an image is used only if its registry
	// gives it to the owner, with the credential of the pod or without one. See
	// [CheckLocalImage].
	LocalImages []string
	// ImageRecheck is how long an owner may use an image on the host after its registry
	// gave it to the owner. After that time, the next start that creates a container asks
	// the registry again. If the registry does not answer, the image may not be used.
	// Default 10 min; negative: every such start asks.
	ImageRecheck time.Duration
	// Subnet has the addresses of the networks of containers. Each owner gets a block of
	// 128 addresses; the first block is for gateways. Blocks that overlap a network of the
	// engine or a route of this machine are not used. Default: the first of 10.201.0.0/16,
	// 172.31.0.0/16 and 192.168.128.0/17 with a free block. Two engines on one machine need a
	// Subnet each: they do not see what the other is about to take. See [CheckSubnet].
	Subnet netip.Prefix
	// ImageAge is how long an image is kept that no container has. Only images that a
	// Runtime with this directory pulled are removed, and never LocalImages. Default 14
	// days; negative: images are not removed for their age.
	ImageAge time.Duration
	// DiskFree is how many percent of the engine's disk should be free. While less is free,
	// such images are removed at once, the least recently used first, but not those that
	// were used in the last 10 minutes. This needs an engine on this machine, on Linux.
	// Default 10; negative: free space is not checked.
	DiskFree int
	// Runtime is the OCI runtime of containers, by its name in the engine: runsc for
	// gVisor, kata. Default: the engine's default. Open fails if the engine does not know
	// it. Podman does not list its runtimes: Open checks only that the program is
	// installed.
	Runtime string
	// UserNamespaces requires that root in a container is not root of this machine. Docker
	// must be configured for that (userns-remap). Podman gives each container its own user
	// ids, for which the user "containers" needs ranges in /etc/subuid and /etc/subgid.
	// With Podman, the files of a volume change their owner to the container that started
	// last. Open fails if the engine cannot do this. Default: as the engine is configured.
	UserNamespaces bool
	// Isolation says what Open does if containers cannot be isolated in every way. Default
	// IsolationAuto.
	Isolation Isolation
	// Reachable are TCP addresses of this machine that containers may connect to. A
	// loopback or unspecified address means the address of [Runtime.Gateway]. Containers
	// can reach no other port of this machine, except the ports of pods on Host and the
	// name server of their network.
	Reachable []netip.AddrPort
	// Deny are IPv4 blocks that containers may not connect to, in addition to link-local
	// addresses and the metadata addresses of clouds.
	Deny []netip.Prefix
	// PidsLimit is how many processes and threads a container may have. Default 4096; -1:
	// no limit.
	PidsLimit int64
	// CapDrop are capabilities that containers do not get although the engine gives them
	// by default. Default NET_RAW and MKNOD; an empty slice that is not nil drops none. On
	// current kernels, ping works without NET_RAW.
	CapDrop []string
	// AllowNewPrivileges lets programs gain privileges that the container's first process
	// does not have, by setuid programs such as sudo and by file capabilities. Default:
	// they cannot (no_new_privs). Programs that start as root and drop privileges, such as
	// sshd and apt, work in both cases.
	AllowNewPrivileges bool
	// Init runs a small init as the first process. Default: the program of the image is the
	// first process. It must reap orphans and handle signals itself.
	Init bool
	// Ulimits are limits of each container by their names in ulimit(5): {"memlock": -1} for all
	// memory, which drivers of networks between GPUs lock. -1: no limit. Default: the engine's.
	Ulimits map[string]int64
	// ShmSize is the size of /dev/shm in bytes of a container that asks for none. Default: half of
	// its memory, or the engine's default, 64 MiB, for one without a limit.
	ShmSize int64
	// DiskLimit says that the storage driver enforces the size of a container's disk. Set
	// it for overlay2 on XFS mounted with pquota, which Open cannot detect. The drivers
	// btrfs and zfs always enforce it, and the image store of containerd never does,
	// whatever this field says. Where the driver does not enforce it, what a container has
	// written is measured, and a container with more than its disk is ended.
	DiskLimit bool
	// CDIDirs are the directories of this machine with CDI specifications of its GPUs.
	// Later directories have precedence. Default /etc/cdi and /var/run/cdi. An engine that
	// knows CDI reads the directories of its own configuration: Podman's must be these.
	CDIDirs []string
	// LogSize is how many bytes of output the engine keeps of one container, as the engine
	// counts them. It keeps the latest. Default 100 MiB; at least 1 MiB.
	LogSize int64
	// Resync is the interval at which all containers are listed, in case an event was
	// missed. Default 30 s.
	Resync time.Duration
	// Logger gets messages about problems that no pod state shows. Default: nothing is
	// logged.
	Logger *slog.Logger

	diskCheck time.Duration // pause between looks at the disks of containers; only tests set it
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if !d.Host.IsValid() {
		d.Host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if d.PidsLimit == 0 {
		d.PidsLimit = 4096
	}
	if d.CapDrop == nil {
		d.CapDrop = []string{"NET_RAW", "MKNOD"}
	}
	if len(d.CDIDirs) == 0 {
		d.CDIDirs = []string{cdi.DefaultStaticDir, cdi.DefaultDynamicDir}
	}
	if d.LogSize <= 0 {
		d.LogSize = 100 << 20
	}
	d.LogSize = max(d.LogSize, 1<<20)
	if d.ImageRecheck == 0 {
		d.ImageRecheck = 10 * time.Minute
	}
	if d.ImageAge == 0 {
		d.ImageAge = 14 * 24 * time.Hour
	}
	if d.DiskFree == 0 {
		d.DiskFree = 10
	}
	if d.diskCheck <= 0 {
		d.diskCheck = 10 * time.Second
	}
	if d.Resync <= 0 {
		d.Resync = 30 * time.Second
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return d
}

package docker

import (
	"log/slog"
	"net/netip"
	"time"

	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// Options of a Runtime. The zero value of a field is its default.
type Options struct {
	// Engine is the address of the engine, as DOCKER_HOST has it: unix:///run/docker.sock.
	// Default: what the environment says (DOCKER_HOST, DOCKER_TLS_VERIFY,
	// DOCKER_CERT_PATH), and else the default socket of Docker.
	Engine string
	// Host is the address of this machine that ports are published on. Default 127.0.0.1.
	Host netip.Addr
	// Trusted says whose pods use every image that is on the host without asking a registry:
	// those of the operator. Nil: nobody's but those without an owner, which are the
	// program's own. It is called from many goroutines.
	Trusted func(owner string) bool
	// LocalImages are images that everybody may use as they are on the host, without asking
	// a registry, such as those that were built there. An entry is a name in which a star
	// stands for any text; without a tag it means all tags. An image that is not there is
	// pulled. Default: none, and then an image is used only when its registry gives it to the
	// owner, by the credential of the pod or to everybody. See [CheckLocalImage].
	LocalImages []string
	// ImageRecheck is how long an owner may use an image that is on the host after its
	// registry gave it to the owner. Then the registry is asked again, at the next start that
	// makes a container. A registry that does not answer gives nothing. Default 10 min;
	// negative: it is asked each time.
	ImageRecheck time.Duration
	// Subnet are the addresses of the networks of containers: each owner has a block of 128 of
	// it, and the first block is for gateways. Blocks that overlap a network of the engine or
	// a route of this machine are left out. Default: the first of 10.201.0.0/16,
	// 172.31.0.0/16 and 192.168.128.0/17 in which a block is free. See [CheckSubnet].
	Subnet netip.Prefix
	// ImageAge is for how long an image stays that no container has. Only images that a Runtime
	// of this directory pulled are removed, and none of LocalImages. Default 14 days;
	// negative: they stay.
	ImageAge time.Duration
	// DiskFree is how many percent of the engine's disk are to be free. While it is less,
	// such images go at once, those that were unused longest first, but for those used in the
	// last 10 minutes. It works with an engine on this machine, on Linux. Default 10;
	// negative: it is not looked at.
	DiskFree int
	// Runtime is the OCI runtime of containers, by the name that the engine has for it: runsc
	// for gVisor, kata. Default: the engine's. Open fails where the engine does not know it;
	// of Podman it is only known that it is installed.
	Runtime string
	// UserNamespaces demands that root of a container is not root of this machine. Docker has
	// to be set to that (userns-remap). Podman gives each container users of its own, for
	// which the user "containers" needs ranges in /etc/subuid and /etc/subgid; the files of
	// a volume then become those of the container that started last. Open fails where it
	// cannot be had. Default: as the engine is set.
	UserNamespaces bool
	// Isolation says what happens where containers cannot be kept apart in every way. Default
	// IsolationAuto.
	Isolation Isolation
	// Reachable are TCP addresses of this machine that containers may connect to. A loopback
	// or unspecified address stands for that of [Runtime.Gateway]. All else of this machine
	// is closed to containers, but for the ports of pods on Host.
	Reachable []netip.AddrPort
	// Deny are addresses that containers may not connect to, besides link-local ones and those
	// at which clouds have metadata: IPv4, where the operator has something to hide from them.
	Deny []netip.Prefix
	// PidsLimit is how many processes and threads a container may have. Default 4096; -1 is no
	// limit.
	PidsLimit int64
	// CapDrop are capabilities that containers do not get, of those that the engine gives by
	// default. Default NET_RAW and MKNOD; an empty slice that is not nil drops none. A ping
	// needs no NET_RAW on a kernel of this decade.
	CapDrop []string
	// AllowNewPrivileges lets programs gain rights that the container's first process does not
	// have: by setuid programs such as sudo, and by capabilities of files. Default: they cannot
	// (no_new_privs). Programs that start as root and give rights up, as sshd and apt do, work
	// in either case.
	AllowNewPrivileges bool
	// Init runs a small init as the first process. Default: the program of the image is the
	// first process, and has to reap orphans and react to signals itself.
	Init bool
	// ShmSize is the size of /dev/shm in bytes. Default: the engine's, 64 MiB.
	ShmSize int64
	// DiskLimit says that the storage driver enforces the size of a container's disk. Set it for
	// overlay2 on XFS mounted with pquota, where that cannot be found out. The drivers btrfs
	// and zfs always enforce it, and the image store of containerd never does, whatever this
	// says.
	DiskLimit bool
	// CDIDirs are the directories of this machine with CDI specifications of its GPUs, those
	// with more weight last. Default /etc/cdi and /var/run/cdi. An engine that knows CDI reads
	// those of its own configuration: Podman's have to be these.
	CDIDirs []string
	// LogSize is how many bytes of output the engine keeps of one container, the latest, as
	// the engine counts them. Default 100 MiB, at least 1 MiB.
	LogSize int64
	// Grace is how long a container that is replaced may take to end by itself. Default
	// 1 s.
	Grace time.Duration
	// Resync is how often all containers are listed, in case an event was missed. Default 30 s.
	Resync time.Duration
	// Logger gets what no state of a pod shows. Default: nothing is logged.
	Logger *slog.Logger
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
	if d.Grace <= 0 {
		d.Grace = time.Second
	}
	if d.Resync <= 0 {
		d.Resync = 30 * time.Second
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return d
}

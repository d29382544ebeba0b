package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hideMounts gives this thread its own mount namespace. An empty directory is mounted over each
// hidden one, and the pod's own directories are at their paths.
func (p *plan) hideMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	// Later mounts of the host appear here, but mounts made here do not appear on the host.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	own := map[string]string{}
	for _, dir := range p.Own {
		// In this thread's namespace: a directory of another namespace cannot be bound.
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
		if err != nil {
			return &fs.PathError{Op: "open", Path: dir, Err: err}
		}
		own[dir] = "/proc/self/fd/" + strconv.Itoa(fd)
	}
	defer unix.Umask(unix.Umask(0)) // the pod's user must be able to pass through directories above its own
	for _, path := range outermost(p.Hide) {
		if err := cover(path, own); err != nil {
			return err
		}
	}
	if p.HiddenPIDs {
		return hidePIDs()
	}
	return nil
}

// outermost returns paths without those that are below another one.
func outermost(paths []string) (list []string) {
	for i, path := range paths {
		covered := false
		for k, other := range paths {
			covered = covered || below(path, other) && (path != other || k < i)
		}
		if !covered {
			list = append(list, path)
		}
	}
	return list
}

// cover hides path, except for the own directories below it.
func cover(path string, own map[string]string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil // nothing in this namespace gets there
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return mount("/dev/null", path, "", unix.MS_BIND, "")
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := mount("tmpfs", path, "tmpfs", flags, "mode=0711,size=256k"); err != nil {
		return err
	}
	for dir, from := range own {
		if !below(dir, path) {
			continue
		}
		if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // the pod's user passes it
			return err
		}
		if err := mount(from, dir, "", unix.MS_BIND, ""); err != nil {
			return err
		}
		if err := mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
			return err
		}
	}
	return mount("", path, "", unix.MS_REMOUNT|unix.MS_RDONLY|flags, "mode=0711")
}

func mount(source, target, kind string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		return &fs.PathError{Op: "mount", Path: target, Err: err}
	}
	return nil
}

// hidePIDs makes /proc show only processes that the pod may trace. Kernels before 5.8 do not
// know this value and fail, which is right: they would hide processes from the whole host.
func hidePIDs() error {
	return mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "hidepid=invisible,gid=4294967294")
}

// What Landlock can do, by the version of its interface.
const (
	landlockRefer    = 2
	landlockTruncate = 3
	landlockIoctl    = 5
	landlockScopes   = 6
)

const (
	rightsRead  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	rightsFile  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	rightsWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

func landlockVersion() (int, error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, os.NewSyscallError("landlock_create_ruleset", errno)
	}
	return int(version), nil
}

// rights returns all rights to files that a version knows.
func rights(version int) uint64 {
	all := uint64(unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1)
	for since, right := range map[int]uint64{
		landlockRefer: unix.LANDLOCK_ACCESS_FS_REFER, landlockTruncate: unix.LANDLOCK_ACCESS_FS_TRUNCATE, landlockIoctl: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV,
	} {
		if version >= since {
			all |= right
		}
	}
	return all
}

// ruleset returns the rules for this thread: read what is not hidden, write to the pod's
// directories, signal its own processes.
func (p *plan) ruleset() (fd int, err error) {
	all := rights(p.Landlock)
	attr := unix.LandlockRulesetAttr{Access_fs: all}
	if p.Landlock >= landlockScopes {
		attr.Scoped = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	}
	size := unsafe.Sizeof(attr)
	if p.Landlock < landlockScopes {
		size = unsafe.Sizeof(attr.Access_fs) // this version does not know later fields
	}
	made, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0) //nolint:gosec // as the call wants it
	if errno != 0 {
		return -1, os.NewSyscallError("landlock_create_ruleset", errno)
	}
	rules := landlockRules{fd: int(made), all: all}
	for _, path := range p.readable() {
		rules.allow(path, rightsRead)
	}
	if p.Mounts {
		rules.allow("/", unix.LANDLOCK_ACCESS_FS_READ_DIR)
	}
	rules.allow("/dev", rightsRead|rightsWrite)
	rules.allow("/dev/shm", all)
	for _, path := range append(p.Own, p.Writable...) {
		rules.allow(path, all)
	}
	rules.allow("/proc/self/fd/1", rightsFile) // a program that opens /dev/stdout opens its output file
	return int(made), rules.err
}

// readable returns the directories and files below which everything may be read.
func (p *plan) readable() []string {
	if !p.Mounts {
		return around("/", outermost(p.Hide))
	}
	// Mounts hide directories, and files until somebody replaces them: the new file has
	// the name, and no mount. So nothing that is made beside a hidden file can be read.
	files := slices.DeleteFunc(outermost(p.Hide), func(path string) bool {
		info, err := os.Lstat(path)
		return err != nil || info.IsDir()
	})
	if len(files) == 0 {
		return []string{"/"}
	}
	return around("/", files)
}

// around returns the entries of dir that are not hidden. Landlock rules only add rights, so all
// entries beside the path to a hidden directory need a rule of their own.
func around(dir string, hidden []string) (list []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // this user cannot read it
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		onTheWay, is := false, false
		for _, h := range hidden {
			onTheWay, is = onTheWay || below(h, path), is || h == path
		}
		switch {
		case is || e.Type()&fs.ModeSymlink != 0: // a link has the rights of its target
		case onTheWay:
			list = append(list, around(path, hidden)...)
		default:
			list = append(list, path)
		}
	}
	return list
}

// landlockRules adds rules to a ruleset and keeps the first error.
type landlockRules struct {
	fd  int
	all uint64
	err error
}

// allow adds rights to path and everything below it. It skips a path that does not exist or
// that this user cannot reach.
func (r *landlockRules) allow(path string, allowed uint64) {
	if r.err != nil {
		return
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOTDIR) {
		return
	}
	if err != nil {
		r.err = &fs.PathError{Op: "open", Path: path, Err: err}
		return
	}
	defer func() { _ = unix.Close(fd) }()
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		r.err = &fs.PathError{Op: "stat", Path: path, Err: err}
		return
	}
	if info.Mode&unix.S_IFMT != unix.S_IFDIR {
		allowed &= rightsFile
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: allowed & r.all, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.fd), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0) //nolint:gosec // as the call wants it
	if errno != 0 {
		r.err = fmt.Errorf("landlock_add_rule for %s: %w", path, errno)
	}
}

package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/podyard/podyard/internal/podhost"
)

// An identity is the user and the group that a pod runs as.
type identity struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// A userEntry is the record of the user of an owner.
type userEntry struct {
	identity

	Owner string `json:"owner"`
	// Loose means that it ran without Landlock. It may have files anywhere, so its number never
	// goes to another owner.
	Loose bool `json:"loose,omitempty"`
}

// userRules decide as which users pods run.
type userRules struct {
	numbers  UIDRange
	names    map[string]identity // the users that images name
	confined bool                // pods write to their own directories only
}

// newUserRules looks up the users that images name.
func newUserRules(numbers UIDRange, images map[string]Image) (userRules, error) {
	r := userRules{numbers: numbers, names: map[string]identity{}}
	for name, image := range images {
		if image.User == "" {
			continue
		}
		id, err := lookUpUser(image.User)
		if err == nil && numbers.has(id.UID) {
			err = errors.New("it is one of the UIDs of owners")
		}
		if err != nil {
			return r, fmt.Errorf("image %q: user %q: %w", name, image.User, err)
		}
		r.names[image.User] = id
	}
	return r, nil
}

// users records which owner has which user of this host. The record is on disk before a process
// runs as that user. The zero value has no users.
type users struct {
	path   string
	layout layout

	mu      sync.Mutex
	entries []userEntry
}

const usersVersion = 1

type usersFile struct {
	Version int         `json:"version"`
	Users   []userEntry `json:"users"`
}

// open reads the record of an earlier server.
func (u *users) open(root layout) error {
	u.path, u.layout = root.users(), root
	data, err := os.ReadFile(u.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var file usersFile
	if err := json.Unmarshal(data, &file); err != nil {
		return fmt.Errorf("read %s: %w", u.path, err)
	}
	if file.Version != usersVersion {
		return fmt.Errorf("read %s: version %d, want %d", u.path, file.Version, usersVersion)
	}
	u.entries = file.Users
	return nil
}

// lookUpUser finds a user by name or number. It refuses root.
func lookUpUser(name string) (identity, error) {
	found, err := user.Lookup(name)
	if err != nil {
		if _, wrong := strconv.ParseUint(name, 10, 32); wrong != nil {
			return identity{}, err
		}
		if found, err = user.LookupId(name); err != nil { // a number without a name
			found = &user.User{Uid: name, Gid: name}
		}
	}
	uid, wrongUID := strconv.ParseUint(found.Uid, 10, 32)
	gid, wrongGID := strconv.ParseUint(found.Gid, 10, 32)
	if err := errors.Join(wrongUID, wrongGID); err != nil {
		return identity{}, err
	}
	if uid == 0 || uid == 1<<32-1 {
		return identity{}, errors.New("no pod runs as this user")
	}
	return identity{UID: uint32(uid), GID: uint32(gid)}, nil
}

// mayBe returns an error unless the owner may run pods as the user that an image names. Only
// the first owner that does may.
func (u *users) mayBe(r *userRules, name, owner string) error {
	id, ok := r.names[name]
	if !ok {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.mayBeLocked(id, owner)
}

func (u *users) mayBeLocked(id identity, owner string) error {
	if i := u.byUID(id.UID); i >= 0 && u.entries[i].Owner != owner {
		return errors.New("the image runs as a user of the host that another owner has already")
	}
	return nil
}

func (u *users) byUID(uid uint32) int {
	return slices.IndexFunc(u.entries, func(e userEntry) bool { return e.UID == uid })
}

// use calls f with the user that pods of an owner and image run as, or nil where they run as
// the server's user. Until f has returned, the user goes to nobody else. f gives it files, and
// from then on these keep the number in use.
func (u *users) use(r *userRules, owner string, image Image, f func(*identity) error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if image.User == "" && r.numbers.Count == 0 {
		return f(nil)
	}
	id, err := u.giveLocked(r, owner, image)
	if err != nil {
		return err
	}
	return f(&id)
}

func (u *users) giveLocked(r *userRules, owner string, image Image) (identity, error) {
	if image.User != "" {
		id := r.names[image.User]
		if err := u.mayBeLocked(id, owner); err != nil {
			return identity{}, err
		}
		return id, u.keepLocked(r, userEntry{identity: id, Owner: owner})
	}
	i := slices.IndexFunc(u.entries, func(e userEntry) bool { return e.Owner == owner && r.numbers.has(e.UID) })
	if i >= 0 {
		return u.entries[i].identity, u.keepLocked(r, u.entries[i])
	}
	uid, err := u.freeLocked(r)
	if err != nil {
		return identity{}, err
	}
	id := identity{UID: uid, GID: uid}
	return id, u.keepLocked(r, userEntry{identity: id, Owner: owner})
}

// keepLocked records e and replaces another entry with its number.
func (u *users) keepLocked(r *userRules, e userEntry) error {
	i := u.byUID(e.UID)
	if i >= 0 && u.entries[i].Owner == e.Owner {
		e.Loose = e.Loose || u.entries[i].Loose
	}
	e.Loose = e.Loose || !r.confined
	if i >= 0 && u.entries[i] == e {
		return nil
	}
	next := slices.Clone(u.entries)
	if i >= 0 {
		next[i] = e
	} else {
		next = append(next, e)
	}
	data, err := json.Marshal(usersFile{Version: usersVersion, Users: next})
	if err == nil {
		err = podhost.ReplaceFile(u.path, data, true)
	}
	if err != nil {
		return fmt.Errorf("its user cannot be put on record: %w", err)
	}
	u.entries = next
	return nil
}

// freeLocked finds a number that no owner has, or one of which nothing is left.
func (u *users) freeLocked(r *userRules) (uint32, error) {
	taken := make(map[uint32]bool, len(u.entries))
	for _, e := range u.entries {
		taken[e.UID] = true
	}
	for uid := r.numbers.First; r.numbers.has(uid); uid++ {
		if !taken[uid] {
			return uid, nil
		}
	}
	used, err := u.layout.owners()
	if err != nil {
		return 0, fmt.Errorf("the users that still have files cannot be found: %w", err)
	}
	running, err := runningUsers()
	if err != nil {
		return 0, fmt.Errorf("the users that still have processes cannot be found: %w", err)
	}
	for _, e := range u.entries {
		if r.numbers.has(e.UID) && !e.Loose && !used[e.UID] && !running[e.UID] {
			return e.UID, nil
		}
	}
	return 0, fmt.Errorf("all %d users of this host's pods are taken", r.numbers.Count)
}

// owners returns the users that own a directory of a pod, or a volume.
func (l layout) owners() (map[uint32]bool, error) {
	pods, err := readDirs(l.at("pods"))
	if err != nil {
		return nil, err
	}
	used := map[uint32]bool{}
	for _, dir := range append(pods, l.at("volumes")) {
		inner, err := readDirs(dir)
		if err != nil {
			return nil, err
		}
		for _, path := range inner {
			info, err := os.Lstat(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			used[ownerOf(info)] = true
		}
	}
	return used, nil
}

// readDirs returns the directories in dir; none if dir does not exist.
func readDirs(dir string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}

// give makes the user the owner of a tree, its root last. If the user owns the root already, it
// changes nothing.
func give(dir string, id identity) error {
	info, err := os.Lstat(dir)
	if err != nil || ownerOf(info) == id.UID {
		return err
	}
	root, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return err
	}
	top := filepath.Base(dir)
	err = fs.WalkDir(root.FS(), top, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == top {
			return err
		}
		info, err := root.Lstat(path)
		if err != nil {
			return err
		}
		// A second name of the file may be in a directory of another.
		if info.Mode().IsRegular() && linksOf(info) > 1 {
			return nil
		}
		return root.Lchown(path, int(id.UID), int(id.GID))
	})
	if err == nil {
		err = root.Lchown(top, int(id.UID), int(id.GID))
	}
	return errors.Join(err, root.Close())
}

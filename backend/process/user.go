package process

import (
	"errors"
	"os"
	"os/user"
	"strconv"

	"github.com/podyard/podyard/backend/process/internal/supervise"
)

// Nobody is the user that owns nothing, by its number on every Linux.
const Nobody = "65534"

// CheckUser returns an error for a user that pods cannot run as on this host.
func CheckUser(name string) error {
	_, err := lookUpUser(name)
	return err
}

// lookUpUser finds a user by name or number. It is nil for the user of the server.
func lookUpUser(name string) (*supervise.Identity, error) {
	if name == "" {
		return nil, nil
	}
	found, err := user.Lookup(name)
	if err != nil {
		if _, wrong := strconv.ParseUint(name, 10, 32); wrong != nil {
			return nil, err
		}
		if found, err = user.LookupId(name); err != nil { // a number without a name
			found = &user.User{Uid: name, Gid: name, Username: name}
		}
	}
	uid, wrongUID := strconv.ParseUint(found.Uid, 10, 32)
	gid, wrongGID := strconv.ParseUint(found.Gid, 10, 32)
	if err := errors.Join(wrongUID, wrongGID); err != nil {
		return nil, err
	}
	switch {
	case uid == uint64(os.Geteuid()):
		return nil, nil
	case uid == 1<<32-1:
		return nil, errors.New("no pod runs as this user")
	case os.Geteuid() != 0:
		return nil, errors.New("the server is not root, and pods run as its user")
	}
	return &supervise.Identity{UID: uint32(uid), GID: uint32(gid), Name: found.Username}, nil
}

// userName is the name of the user of a pod, for programs that ask the environment.
func userName(id *supervise.Identity) string {
	if id != nil {
		return id.Name
	}
	if me, err := user.Current(); err == nil {
		return me.Username
	}
	return strconv.Itoa(os.Geteuid())
}

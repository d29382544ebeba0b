package sshfront

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"

	"golang.org/x/crypto/ssh"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/sshkeys"
)

// A visitor is who has logged in.
type visitor struct {
	name       string // of the login
	pod, owner string
	key        sshkeys.Key
	id         httpapi.Identity // of the API key that has put key
	version    string           // of the client
	source     net.Addr
}

// errRefused is the only reason that clients get: a pod of another user is as one that does not exist.
var errRefused = errors.New("sshfront: refused")

// A login is the handshake of one connection.
type login struct {
	front *Front
	ctx   context.Context //nolint:containedctx // of one connection
	tries visitor         // who has shown a key, and not that it is theirs
}

type visitorKey struct{}

// check says whether a key that a client shows, and may not have, would be good.
func (l *login) check(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	l.tries.name, l.tries.version = c.User(), string(c.ClientVersion())
	v, err := l.front.find(l.ctx, c.User(), key)
	if err != nil {
		return nil, err
	}
	return &ssh.Permissions{ExtraData: map[any]any{visitorKey{}: v}}, nil
}

func (l *login) who(c *ssh.ServerConn) *visitor {
	v, _ := c.Permissions.ExtraData[visitorKey{}].(*visitor)
	return v
}

// find returns the visitor of a name and a key.
func (f *Front) find(ctx context.Context, user string, key ssh.PublicKey) (*visitor, error) {
	pod, ok := f.API.PodSSH.PodOf(user)
	if !ok {
		return nil, errRefused
	}
	owner, err := f.Pods.Owner(ctx, pod)
	if err != nil {
		return nil, f.refused(err)
	}
	keys, err := f.Keys.Keys(ctx, owner)
	if err != nil {
		return nil, f.refused(err)
	}
	want := key.Marshal()
	for _, k := range keys {
		if k.By == "" || !bytes.Equal(wireOf(k.Line), want) {
			continue
		}
		if id, err := httpapi.Entering(ctx, f.API.Auth, owner, k.By); err == nil {
			return &visitor{name: user, pod: pod, owner: owner, key: k, id: id}, nil
		}
	}
	return nil, errRefused
}

// refused logs what went wrong with the server.
func (f *Front) refused(err error) error {
	if !errors.Is(err, pods.ErrNotFound) {
		f.log.Error("a login of SSH could not be checked", "err", err)
	}
	return errRefused
}

// wireOf is a line of authorized_keys as it is on the wire; nil if it is none.
func wireOf(line string) []byte {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line)) //nolint:dogsled // the rest is options
	if err != nil {
		return nil
	}
	return key.Marshal()
}

// good reports whether the visitor may still be there. A failure to look takes nothing away.
func (v *visitor) good(ctx context.Context, f *Front) bool {
	if !httpapi.MayEnter(ctx, f.API.Auth, v.owner, v.key.By) {
		return false
	}
	keys, err := f.Keys.Keys(ctx, v.owner)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(keys, func(k sshkeys.Key) bool { return k == v.key })
}

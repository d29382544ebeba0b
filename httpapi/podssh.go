package httpapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// A PodSSH is where the SSH front of pods is, and what its names are made of (docs/decisions.md 54).
type PodSSH struct {
	Host string // by which clients reach it
	Port int
	// Secret is the same for all servers that share pods. The tokens of pods and the host key are made
	// of it. Default of server.New: from the secret of the store.
	Secret []byte
}

// User returns the name by which a pod is reached.
func (s *PodSSH) User(pod string) string {
	mac := hmac.New(sha256.New, s.Secret)
	mac.Write([]byte("name of a pod " + pod))
	return pod + "-" + hex.EncodeToString(mac.Sum(nil)[:4])
}

// PodOf returns the pod of a name, if it is one of User.
func (s *PodSSH) PodOf(user string) (pod string, ok bool) {
	i := strings.LastIndexByte(user, '-')
	if i < 1 {
		return "", false
	}
	pod = user[:i]
	return pod, hmac.Equal([]byte(user), []byte(s.User(pod)))
}

func (s *PodSSH) endpoint(pod string) *sshEndpoint {
	user := s.User(pod)
	return &sshEndpoint{s.Host, s.Port, user, fmt.Sprintf("ssh %s@%s -p %d", user, s.Host, s.Port)}
}

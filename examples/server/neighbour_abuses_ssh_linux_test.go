package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// An sshTarget is how a tenant logs in to a pod.
type sshTarget struct {
	addr, user string
	key        ssh.Signer
}

// withSSH serves SSH into still pods.
func withSSH(t *testing.T, s *settingsOf) []string {
	return append(withStillPods(t, s), "-ssh", "127.0.0.1:0")
}

// sshPod makes a still pod of the tenant, and a key for it.
func (n *tenant) sshPod() {
	n.stillPod()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		n.t.Fatal(err)
	}
	if n.ssh.key, err = ssh.NewSignerFromKey(private); err != nil {
		n.t.Fatal(err)
	}
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(n.ssh.key.PublicKey())))
	if status, b := n.do(n.t.Context(), "PUT", "/v2/account/ssh-keys", `{"keys":["`+line+`"]}`); status != http.StatusOK {
		n.t.Fatalf("a key = %d %.200s", status, b)
	}
	var p struct {
		SSH struct {
			Proxy struct {
				Host, Username string
				Port           int
			}
		}
	}
	_, b := n.do(n.t.Context(), "GET", "/v2/pods/"+n.pod, "")
	if err := json.Unmarshal(b, &p); err != nil || p.SSH.Proxy.Port == 0 {
		n.t.Fatalf("a pod without an address of SSH: %.500s", b)
	}
	n.ssh.addr, n.ssh.user = net.JoinHostPort(p.SSH.Proxy.Host, strconv.Itoa(p.SSH.Proxy.Port)), p.SSH.Proxy.Username
}

// sshClient logs in from the tenant's address; nil after a refusal.
func (n *tenant) sshClient(ctx context.Context) *ssh.Client {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(n.from)}, Timeout: 10 * time.Second}
	c, err := d.DialContext(ctx, "tcp", n.ssh.addr)
	if err != nil {
		return nil
	}
	_ = c.SetDeadline(time.Now().Add(30 * time.Second)) // a test may end before
	conn, channels, requests, err := ssh.NewClientConn(c, n.ssh.addr, &ssh.ClientConfig{
		User: n.ssh.user, Auth: []ssh.AuthMethod{ssh.PublicKeys(n.ssh.key)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		closeConn(c)
		return nil
	}
	_ = c.SetDeadline(time.Time{}) // it may be closed
	return ssh.NewClient(conn, channels, requests)
}

var abusesOfSSH = []abuse{
	{door: "SSH", name: "connections of SSH that do not log in", server: withSSH, prepare: (*tenant).sshPod, do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 300, func(int) {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(n.from)}}
			c, err := d.DialContext(ctx, "tcp", n.ssh.addr)
			if err != nil {
				return
			}
			defer closeConn(c)
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			_, _ = io.WriteString(c, "SSH-2.0-rude\r\n") // it may be refused
			_, _ = io.Copy(io.Discard, c)                // until it is cut off
		})
	}},
	{door: "SSH", name: "shells and forwarded ports whose output nobody reads", server: withSSH, prepare: (*tenant).sshPod, do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 8, func(int) {
			c := n.sshClient(ctx)
			if c == nil {
				return
			}
			defer c.Close()
			var all sync.WaitGroup
			for range 40 {
				all.Go(func() {
					ch, _, err := c.OpenChannel("session", nil)
					if err != nil {
						return
					}
					_, _ = ch.SendRequest("exec", false, ssh.Marshal(struct{ Command string }{"yes"}))
					for ctx.Err() == nil {
						if _, err := io.WriteString(ch, megabyte); err != nil {
							return
						}
					}
				})
			}
			<-ctx.Done()
			_ = c.Close() // ends the writers
			all.Wait()
		})
	}},
}

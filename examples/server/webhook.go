package main

import (
	"errors"
	"net"
	"net/netip"

	"github.com/podyard/podyard/backend/webhook"
	"github.com/podyard/podyard/serverless"
)

// sender posts webhooks. Addresses that are not public are refused, unless the
// configuration says otherwise or nobody but this machine can reach the server.
func (s *settings) sender() (serverless.Sender, error) {
	private := isLoopback(s.addr)
	if s.Webhook.AllowPrivate != nil {
		private = *s.Webhook.AllowPrivate
	}
	for i, secret := range s.Webhook.Secrets {
		if _, err := webhook.New(&webhook.Options{Secrets: []string{secret}}); err != nil {
			return nil, wrongAt(at("/webhook/secrets", i), "%w", errors.Unwrap(err))
		}
	}
	return webhook.New(&webhook.Options{Secrets: s.Webhook.Secrets, AllowPrivate: private})
}

// isLoopback reports whether only this machine reaches a listen address.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || host == "localhost"
}

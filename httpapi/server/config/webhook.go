package config

import (
	"errors"
	"net"
	"slices"

	"github.com/podyard/podyard/backend/webhook"
	"github.com/podyard/podyard/serverless"
)

func (c *Config) checkWebhook() error {
	for i, secret := range c.Webhook.Secrets {
		if _, err := webhook.New(&webhook.Options{Secrets: []string{secret}}); err != nil {
			return errorAt(elementAt("/webhook/secrets", i), "%w", errors.Unwrap(err))
		}
	}
	for i, entry := range c.Webhook.Deny {
		if _, err := webhook.New(&webhook.Options{Deny: []string{entry}}); err != nil {
			return errorAt(elementAt("/webhook/deny", i), "%w", errors.Unwrap(err))
		}
	}
	return nil
}

// local reports whether only this machine reaches the server. One that has a public URL is behind a
// proxy, so that others reach it although it listens on loopback.
func (o *Options) local() bool {
	tcp, ok := o.Addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback() && o.PublicURL == ""
}

// sender posts webhooks.
func (c *Config) sender(o *Options) (serverless.Sender, error) {
	private, deny := o.local(), c.Webhook.Deny
	if c.Webhook.AllowPrivate != nil {
		private = *c.Webhook.AllowPrivate
	} else if private {
		deny = slices.Concat(deny, metadata())
	}
	return webhook.New(&webhook.Options{Secrets: c.Webhook.Secrets, AllowPrivate: private, Deny: deny})
}

// metadata is where clouds serve metadata to their machines. Who asked for nothing wants receivers on
// a laptop, and not these.
func metadata() []string {
	return []string{"169.254.0.0/16", "168.63.129.16", "100.100.100.200", "192.0.0.192", "192.80.8.124", "fd00:ec2::/32", "fd20:ce::254", "fd00:42::42"}
}

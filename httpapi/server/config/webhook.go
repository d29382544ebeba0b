package config

import (
	"errors"
	"net"

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

// sender posts webhooks. A server that has a public URL is behind a proxy, so that others
// reach it although it listens on loopback.
func (c *Config) sender(o *Options) (serverless.Sender, error) {
	tcp, ok := o.Addr.(*net.TCPAddr)
	private := ok && tcp.IP.IsLoopback() && o.PublicURL == ""
	if c.Webhook.AllowPrivate != nil {
		private = *c.Webhook.AllowPrivate
	}
	return webhook.New(&webhook.Options{Secrets: c.Webhook.Secrets, AllowPrivate: private, Deny: c.Webhook.Deny})
}

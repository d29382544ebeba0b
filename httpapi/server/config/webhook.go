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
	return nil
}

// sender posts webhooks. Addresses that are not public are refused, unless the configuration
// says otherwise or nobody but this machine can reach the server.
func (c *Config) sender(addr net.Addr) (serverless.Sender, error) {
	tcp, ok := addr.(*net.TCPAddr)
	private := ok && tcp.IP.IsLoopback()
	if c.Webhook.AllowPrivate != nil {
		private = *c.Webhook.AllowPrivate
	}
	return webhook.New(&webhook.Options{Secrets: c.Webhook.Secrets, AllowPrivate: private})
}

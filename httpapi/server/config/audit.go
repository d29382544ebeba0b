package config

import (
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/podyard/podyard/httpapi/audit"
)

// An Audit is how much of the audit log is kept, in Options.Data (docs/decisions.md 35). There
// are two of these, one of changes and one of refusals.
type Audit struct {
	Files     int   `json:"files"`     // 0 is the default, 10
	FileBytes int64 `json:"fileBytes"` // of each file; 0 is the default, 10 MiB
}

// memoryAudit is how many records there are of a kind in a server that keeps nothing.
const memoryAudit = 1000

// The bounds of an Audit.
const (
	maxAuditFiles = 1000
	minAuditBytes = 64 << 10
	maxAuditBytes = 1 << 30
)

func (c *Config) checkAudit() error {
	if n := c.Audit.Files; n < 0 || n > maxAuditFiles {
		return errorAt("/audit/files", "must be from 1 to %d, or 0 for the default", maxAuditFiles)
	}
	if n := c.Audit.FileBytes; n != 0 && (n < minAuditBytes || n > maxAuditBytes) {
		return errorAt("/audit/fileBytes", "must be from %d to %d, or 0 for the default", minAuditBytes, maxAuditBytes)
	}
	for i, s := range c.TrustedProxies {
		if _, err := parseNetwork(s); err != nil {
			return errorAt(elementAt("/trustedProxies", i), "must be an address or a network like 10.0.0.0/8, not %q", s)
		}
	}
	return nil
}

// parseNetwork reads a network, or an address as the network of one.
func parseNetwork(s string) (netip.Prefix, error) {
	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		return p.Masked(), err
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	return a.Unmap().Prefix(a.Unmap().BitLen())
}

// openAudit opens the audit log, which is closed with the stores.
func (p *Parts) openAudit() error {
	api := &p.Options.API
	for _, s := range p.config.TrustedProxies {
		if network, err := parseNetwork(s); err == nil { // as checkAudit has seen
			api.TrustedProxies = append(api.TrustedProxies, network)
		}
	}
	if p.own.Data == "" {
		api.Audit = audit.NewMemory(memoryAudit)
		return nil
	}
	log, err := audit.Open(filepath.Join(p.own.Data, "audit"), &audit.Options{
		Files: p.config.Audit.Files, FileBytes: p.config.Audit.FileBytes, Logger: p.log,
	})
	if err != nil {
		return p.own.wrong("Data", err)
	}
	api.Audit, p.last = log, append(p.last, log.Close)
	return nil
}

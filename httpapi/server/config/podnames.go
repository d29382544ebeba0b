package config

import "net/url"

// podNames returns the domain of the names of pods' HTTP ports, and whether they take a key. A page of a
// pod must not be of the site of the console, where a browser would trust it more.
func (c *Config) podNames(o *Options) (domain string, keys bool, err error) {
	domain, keys = c.Pods.Domain, c.Pods.ExposeHTTP == ExposeKey || c.Pods.ExposeHTTP == "" && !o.local()
	if domain == "" && o.local() {
		domain = localDomain
	}
	if u, err := url.Parse(o.PublicURL); err == nil && domain != localDomain && overlap(domain, u.Hostname()) {
		return "", false, errorAt("/pods/domain", "must not be, contain or lie under the host of the public URL, %q", u.Hostname())
	}
	return domain, keys, nil
}

// localDomain is the domain whose names browsers take for this machine.
const localDomain = "localhost"

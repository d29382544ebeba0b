package webhook

import (
	"net/netip"
)

// reserved are the ranges of the IANA special-purpose registries that are not globally
// reachable, and those that reach a host by another address inside them.
var reserved = prefixes(
	"0.0.0.0/8",       // this network (RFC 791)
	"10.0.0.0/8",      // private (RFC 1918)
	"100.64.0.0/10",   // shared, behind carriers' NAT (RFC 6598)
	"127.0.0.0/8",     // loopback (RFC 1122)
	"169.254.0.0/16",  // link-local, and cloud metadata (RFC 3927)
	"172.16.0.0/12",   // private (RFC 1918)
	"192.0.0.0/24",    // protocol assignments (RFC 6890)
	"192.0.2.0/24",    // documentation (RFC 5737)
	"192.88.99.0/24",  // 6to4 relays (RFC 7526)
	"192.168.0.0/16",  // private (RFC 1918)
	"198.18.0.0/15",   // benchmarks (RFC 2544)
	"198.51.100.0/24", // documentation (RFC 5737)
	"203.0.113.0/24",  // documentation (RFC 5737)
	"224.0.0.0/4",     // multicast (RFC 1112)
	"240.0.0.0/4",     // reserved and broadcast (RFC 1112)
	"2001::/23",       // protocol assignments, Teredo and ORCHID among them (RFC 2928)
	"2001:db8::/32",   // documentation (RFC 3849)
	"2002::/16",       // 6to4: an IPv4 address inside (RFC 3056)
	"3fff::/20",       // documentation (RFC 9637)
)

var (
	global = netip.MustParsePrefix("2000::/3")     // all that is assigned for unicast
	nat64  = netip.MustParsePrefix("64:ff9b::/96") // an IPv4 address inside (RFC 6052)
)

func prefixes(list ...string) []netip.Prefix {
	ps := make([]netip.Prefix, len(list))
	for i, s := range list {
		ps[i] = netip.MustParsePrefix(s)
	}
	return ps
}

// IsPublic reports whether an address is one of the public internet. IPv4 addresses
// inside IPv6 ones count as what they are; an address with a zone is never public.
func IsPublic(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	if a.Is6() && !global.Contains(a) {
		return false
	}
	for _, p := range reserved {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

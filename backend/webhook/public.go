package webhook

import (
	"net/netip"
)

// reserved are the ranges that are not public although they are assigned: those of the
// IANA special-purpose registries (testdata/special-purpose.txt), multicast, and public
// addresses at which a cloud serves its own machines.
var reserved = prefixes(
	"0.0.0.0/8",         // this network (RFC 791)
	"10.0.0.0/8",        // private (RFC 1918)
	"100.64.0.0/10",     // shared, behind carriers' NAT (RFC 6598); 100.100.100.200 has metadata of Alibaba Cloud
	"127.0.0.0/8",       // loopback (RFC 1122)
	"168.63.129.16/32",  // metadata and agents of Azure
	"169.254.0.0/16",    // link-local, and metadata of most clouds (RFC 3927)
	"172.16.0.0/12",     // private (RFC 1918)
	"192.0.0.0/24",      // protocol assignments (RFC 6890); 192.0.0.192 has metadata of Oracle Cloud
	"192.0.2.0/24",      // documentation (RFC 5737)
	"192.31.196.0/24",   // AS112 (RFC 7535)
	"192.52.193.0/24",   // multicast tunnels (RFC 7450)
	"192.80.8.124/32",   // metadata of Equinix Metal
	"192.88.99.0/24",    // 6to4 relays (RFC 7526)
	"192.168.0.0/16",    // private (RFC 1918)
	"192.175.48.0/24",   // AS112 (RFC 7534)
	"198.18.0.0/15",     // benchmarks (RFC 2544)
	"198.51.100.0/24",   // documentation (RFC 5737)
	"203.0.113.0/24",    // documentation (RFC 5737)
	"224.0.0.0/4",       // multicast (RFC 1112)
	"240.0.0.0/4",       // reserved and broadcast (RFC 1112)
	"2001::/23",         // protocol assignments, Teredo and ORCHID among them (RFC 2928)
	"2001:db8::/32",     // documentation (RFC 3849)
	"2002::/16",         // 6to4: an IPv4 address inside (RFC 3056)
	"2620:4f:8000::/48", // AS112 (RFC 7534)
	"3fff::/20",         // documentation (RFC 9637)
)

var (
	global = netip.MustParsePrefix("2000::/3")     // all that is assigned for unicast
	nat64  = netip.MustParsePrefix("64:ff9b::/96") // an IPv4 address inside (RFC 6052)
	sixTo4 = netip.MustParsePrefix("2002::/16")    // an IPv4 address inside (RFC 3056)
)

func prefixes(list ...string) []netip.Prefix {
	ps := make([]netip.Prefix, len(list))
	for i, s := range list {
		ps[i] = netip.MustParsePrefix(s)
	}
	return ps
}

// IsPublic reports whether an address is one of the public internet. An IPv4 address that is
// mapped into IPv6, or in the NAT64 prefix, counts as the IPv4 address. An address with a
// zone is never public.
func IsPublic(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	if nat64.Contains(a) {
		a = embedded(a, 12)
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

// embedded returns the IPv4 address at the given byte of an IPv6 one.
func embedded(a netip.Addr, at int) netip.Addr {
	b := a.As16()
	return netip.AddrFrom4([4]byte(b[at:]))
}

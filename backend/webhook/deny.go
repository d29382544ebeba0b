package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// The errors of a refusal go into the delivery log, which the user reads. So they do not say
// what a name resolved to, nor which entry denied it.
var (
	errPrivate = errors.New("the address of the webhook is not public")
	errDenied  = errors.New("webhooks to this receiver are not allowed")
)

// A guard decides which receivers are reached.
type guard struct {
	allowPrivate bool
	names        []string // denied, in lower case; one that begins with a dot is a suffix
	prefixes     []netip.Prefix
	dialer       net.Dialer
}

// deny adds an entry of Options.Deny.
func (g *guard) deny(entry string) error {
	if strings.Contains(entry, "/") {
		p, err := netip.ParsePrefix(entry)
		if err != nil {
			return errEntry
		}
		if p != p.Masked() {
			return fmt.Errorf("has bits after its prefix: %s is the block", p.Masked())
		}
		g.prefixes = append(g.prefixes, unmapPrefix(p))
		return nil
	}
	if a, err := netip.ParseAddr(entry); err == nil {
		if a.Zone() != "" {
			return errors.New("must have no zone")
		}
		a = a.Unmap()
		g.prefixes = append(g.prefixes, netip.PrefixFrom(a, a.BitLen()))
		return nil
	}
	name, err := denyName(entry)
	g.names = append(g.names, name)
	return err
}

var errEntry = errors.New("must be a host name, *.suffix, an IP address or a CIDR block")

// unmapPrefix turns a block of IPv4-mapped addresses into the IPv4 block.
func unmapPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

// denyName checks a host name or *.suffix. A name whose last label is a number is a mistyped
// address.
func denyName(entry string) (string, error) {
	name, suffix := strings.CutPrefix(strings.ToLower(strings.TrimSuffix(entry, ".")), "*.")
	if strings.ContainsFunc(name, func(r rune) bool { return r > 0x7f }) {
		return "", errors.New("must be in ASCII: write the name as DNS has it, with xn--")
	}
	if len(name) > 253 || !regexp.MustCompile(`^([a-z0-9_-]{1,63}\.)*[a-z0-9_-]*[a-z_-][a-z0-9_-]*$`).MatchString(name) {
		return "", errEntry
	}
	if suffix {
		name = "." + name
	}
	return name, nil
}

// deniesName reports whether a host is denied by its name.
func (g *guard) deniesName(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return slices.ContainsFunc(g.names, func(name string) bool {
		return host == name || name[0] == '.' && strings.HasSuffix(host, name)
	})
}

// deniesAddr reports whether an address is denied, or the IPv4 address inside it.
func (g *guard) deniesAddr(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	forms := []netip.Addr{a}
	switch {
	case a.IsUnspecified(): // a connection to it reaches this host
		forms = append(forms, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
	case nat64.Contains(a):
		forms = append(forms, embedded(a, 12))
	case sixTo4.Contains(a):
		forms = append(forms, embedded(a, 2))
	}
	return slices.ContainsFunc(g.prefixes, func(p netip.Prefix) bool {
		return slices.ContainsFunc(forms, p.Contains)
	})
}

// dial refuses denied names before they are resolved, in the form that DNS has of them.
func (g *guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if g.deniesName(host) {
		return nil, errDenied
	}
	return g.dialer.DialContext(ctx, network, address)
}

// control sees each address that is dialed, after the name was resolved.
func (g *guard) control(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	switch {
	case err != nil:
		return errPrivate
	case g.deniesAddr(ap.Addr()):
		return errDenied
	case !g.allowPrivate && !IsPublic(ap.Addr()):
		return errPrivate
	}
	return nil
}

package firewall

import (
	"bufio"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// NameServers returns the name servers of this machine, without zones. In some clouds a name
// server has the address of the metadata service.
func NameServers() []netip.Addr {
	var all []netip.Addr
	// With systemd-resolved, the first file names a loopback address, and the second file
	// names the real servers.
	for _, path := range []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"} {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		all = append(all, parseNameServers(f)...)
		_ = f.Close() // it was only read
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// parseNameServers parses resolv.conf.
func parseNameServers(r io.Reader) (all []netip.Addr) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(fields[1]); err == nil {
			all = append(all, a.WithZone(""))
		}
	}
	return all
}

package docker

import (
	"bufio"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// hostNameServers are those that containers ask, by way of the engine: those of this machine.
// Some clouds have them at the address of their metadata.
func hostNameServers() []netip.Addr {
	var all []netip.Addr
	// The second is the first where systemd answers on loopback.
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

// parseNameServers reads the form of resolv.conf. Those on loopback are the engine's to ask.
func parseNameServers(r io.Reader) (all []netip.Addr) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(fields[1]); err == nil && a.Is4() && !a.IsLoopback() {
			all = append(all, a)
		}
	}
	return all
}

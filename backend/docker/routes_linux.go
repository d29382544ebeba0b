package docker

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"io"
	"math/bits"
	"net/netip"
	"os"
	"strings"
)

// hostRoutes returns the IPv4 blocks to which this machine has a route, without the default
// route.
func hostRoutes() []netip.Prefix {
	f, err := os.Open("/proc/net/route")
	if err != nil {
		return nil // then only the engine rejects blocks that overlap
	}
	defer func() { _ = f.Close() }() // it was only read
	return parseRoutes(f)
}

// parseRoutes parses /proc/net/route, which has addresses in the byte order of this
// machine.
func parseRoutes(r io.Reader) []netip.Prefix {
	var all []netip.Prefix
	for lines := bufio.NewScanner(r); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 8 {
			continue
		}
		to, err1 := hex.DecodeString(fields[1])
		mask, err2 := hex.DecodeString(fields[7])
		if err1 != nil || err2 != nil || len(to) != 4 || len(mask) != 4 {
			continue // the line with the column names
		}
		var a [4]byte
		binary.NativeEndian.PutUint32(a[:], binary.BigEndian.Uint32(to))
		if n := bits.OnesCount32(binary.BigEndian.Uint32(mask)); n > 0 {
			all = append(all, netip.PrefixFrom(netip.AddrFrom4(a), n).Masked())
		}
	}
	return all
}

package webhook

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// specialPurpose are the blocks of the registries, as testdata keeps them.
func specialPurpose(t *testing.T) []netip.Prefix {
	t.Helper()
	f, err := os.Open("testdata/special-purpose.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var list []netip.Prefix
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 0 && fields[0] != "#" {
			list = append(list, netip.MustParsePrefix(fields[0]))
		}
	}
	if len(list) < 50 {
		t.Fatalf("testdata has %d blocks, want those of both registries", len(list))
	}
	return list
}

// ends are the first and the last address of a block.
func ends(p netip.Prefix) []netip.Addr {
	last := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(last)*8; bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(last)
	return []netip.Addr{p.Addr(), a}
}

// forms are an address, and for IPv4 those of IPv6 that have it inside.
func forms(a netip.Addr) []netip.Addr {
	list := []netip.Addr{a}
	if a.Is4() {
		b := a.As4()
		for _, form := range []string{"::ffff:%s", "::%s", "64:ff9b::%s", "64:ff9b:1::%s"} {
			list = append(list, netip.MustParseAddr(fmt.Sprintf(form, a)))
		}
		list = append(list, netip.MustParseAddr(fmt.Sprintf("2002:%x:%x::1", int(b[0])<<8|int(b[1]), int(b[2])<<8|int(b[3]))))
	}
	return list
}

func TestNoSpecialPurposeBlockIsPublicInAnyForm(t *testing.T) {
	for _, p := range specialPurpose(t) {
		for _, end := range ends(p) {
			for _, a := range forms(end) {
				if IsPublic(a) {
					t.Errorf("IsPublic(%v) of %v = true, want false", a, p)
				}
			}
		}
	}
}

func TestNoMetadataOfACloudIsPublicInAnyForm(t *testing.T) {
	for _, s := range []string{
		"169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.42.42", "169.254.0.23", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42",
		"168.63.129.16", "100.100.100.200", "192.0.0.192", "192.80.8.124",
	} {
		for _, a := range forms(netip.MustParseAddr(s)) {
			if IsPublic(a) {
				t.Errorf("IsPublic(%v) = true, want false", a)
			}
		}
	}
}

// A block of the table that is in no registry is one of those that are known here.
func TestEveryReservedBlockHasItsSource(t *testing.T) {
	known := append(specialPurpose(t), prefixes("224.0.0.0/4", "168.63.129.16/32", "192.80.8.124/32")...)
	for _, p := range reserved {
		found := false
		for _, k := range known {
			found = found || k == p
		}
		if !found {
			t.Errorf("%v is reserved, and in no registry", p)
		}
	}
}

package firewall

import (
	"net/netip"
	"strings"
	"testing"
)

func TestDeniedBlocksDoNotOverlap(t *testing.T) {
	got := Merged([]netip.Prefix{
		netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("169.254.169.254/32"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	})
	if len(got) != 2 || got[0].String() != "10.0.0.0/8" || got[1].String() != "169.254.0.0/16" {
		t.Errorf("merged = %v, want 10.0.0.0/8 and 169.254.0.0/16", got)
	}
}

func TestNameServersAreThoseOfTheHost(t *testing.T) {
	got := parseNameServers(strings.NewReader("# by hand\nsearch example.test\nnameserver 127.0.0.53\nnameserver 10.0.0.2\nnameserver fd00::2%eth0\nnameserver\n"))
	if len(got) != 3 || got[0].String() != "127.0.0.53" || got[2].String() != "fd00::2" {
		t.Errorf("name servers are %v, want 127.0.0.53, 10.0.0.2 and fd00::2", got)
	}
}

package docker

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/podyard/podyard/internal/firewall"
	"github.com/podyard/podyard/internal/podhost"
)

func TestFirewallRulesNameWhatMayBeReached(t *testing.T) {
	r := rules{
		Table: "podyard_x", Interfaces: "pyabcde", All: allInterfaces, Host: netip.MustParseAddr("203.0.113.5"),
		Bridges:     []ruledBridge{{"pyabcde1", netip.MustParseAddr("10.201.0.129")}, {"pyabcde2", netip.MustParseAddr("10.201.1.1")}},
		NameServers: []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("169.254.169.254")},
		Reachable:   []netip.AddrPort{netip.MustParseAddrPort("172.17.0.1:8080")},
		Denied:      firewall.Metadata(),
	}
	r.addPublished([]podhost.Port{{Public: 4001}, {Public: 4000}, {Public: 5000, UDP: true}})
	got, err := r.text()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`iifname "pyabcde1" ip daddr 10.201.0.129 meta l4proto { tcp, udp } th dport 53 accept`,
		`ip daddr { 10.0.0.2, 169.254.169.254 } meta l4proto { tcp, udp } th dport 53 accept`,
		`ip daddr 172.17.0.1 tcp dport 8080 accept`,
		`ip daddr 203.0.113.5 tcp dport { 4000, 4001 } accept`,
		`ip daddr 203.0.113.5 udp dport { 5000 } accept`,
		`iifname "pyabcde2" oifname "pyabcde2" accept`,
		`oifname "py*" reject`, // also the bridges of another server's containers
		`ct original ip daddr { 100.100.100.200/32, 168.63.129.16/32, 169.254.0.0/16, 192.0.0.192/32 } reject`,
	} {
		if !strings.Contains(got, "\n\t\t"+want) {
			t.Errorf("no rule %s in\n%s", want, got)
		}
	}
	local := rules{Host: netip.MustParseAddr("127.0.0.1")}
	if local.addPublished([]podhost.Port{{Public: 4000}}); local.TCP != nil {
		t.Error("ports that are published on loopback are reached by containers")
	}
}

func TestOptionsOfIsolationAreChecked(t *testing.T) {
	for _, i := range []Isolation{"", IsolationAuto, IsolationRequired, IsolationOff} {
		if err := CheckIsolation(i); err != nil {
			t.Errorf("CheckIsolation(%q) = %v, want nil", i, err)
		}
	}
	if CheckIsolation("maybe") == nil {
		t.Error("CheckIsolation of an unknown value = nil, want an error")
	}
	for _, p := range []string{"10.0.0.1/8", "fd00::/8"} {
		if CheckDeny(netip.MustParsePrefix(p)) == nil {
			t.Errorf("CheckDeny(%s) = nil, want an error", p)
		}
	}
	if err := CheckDeny(netip.MustParsePrefix("10.0.0.0/8")); err != nil {
		t.Errorf("CheckDeny of a block = %v, want nil", err)
	}
}

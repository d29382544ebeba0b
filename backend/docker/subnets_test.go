package docker

import (
	"net/netip"
	"slices"
	"testing"
)

func TestABlockOverlapsNothingThatIsTaken(t *testing.T) {
	subnet := netip.MustParsePrefix("10.201.0.0/23") // four blocks, three of them for owners
	all := slices.Collect(blocks(subnet))
	if len(all) != 3 || all[0].String() != "10.201.0.128/25" || all[2].String() != "10.201.1.128/25" {
		t.Fatalf("blocks are %v", all)
	}
	taken := []netip.Prefix{netip.MustParsePrefix("10.201.0.200/32"), netip.MustParsePrefix("172.17.0.0/16")}
	if got, ok := freeBlock(subnet, taken); !ok || got != all[1] {
		t.Errorf("free block is %v, %v; want %v", got, ok, all[1])
	}
	for _, wide := range []string{"10.0.0.0/8", "10.201.0.0/16"} {
		if got, ok := freeBlock(subnet, []netip.Prefix{netip.MustParsePrefix(wide)}); ok {
			t.Errorf("free block beside %s is %v, want none", wide, got)
		}
	}
}

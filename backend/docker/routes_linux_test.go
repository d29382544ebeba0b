package docker

import (
	"strings"
	"testing"
)

func TestRoutesAreReadButForTheDefault(t *testing.T) {
	got := parseRoutes(strings.NewReader("Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n" +
		"eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n" +
		"docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"))
	if len(got) != 1 || got[0].String() != "172.17.0.0/16" {
		t.Errorf("routes are %v, want 172.17.0.0/16", got) // the input has little-endian order
	}
}

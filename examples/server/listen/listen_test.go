package listen

import (
	"net"
	"net/url"
	"testing"
)

func TestTheURLOfAnAddressIsOne(t *testing.T) {
	for _, tt := range []struct {
		addr net.TCPAddr
		want string
	}{
		{net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}, "http://127.0.0.1:80"},
		{net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 80, Zone: "eth0"}, "http://[fe80::1%25eth0]:80"},
	} {
		got := URL(&tt.addr, false)
		u, err := url.Parse(got)
		if got != tt.want || err != nil || u.Host != tt.addr.String() {
			t.Errorf("the URL of %s is %s, error %v; want %s", tt.addr.String(), got, err, tt.want)
		}
	}
}

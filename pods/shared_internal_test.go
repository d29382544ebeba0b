package pods

import "testing"

// A volume must not be said to be here because the server that was to have it has gone.
func TestAHostWhoseServerHasGoneIsOfNoServer(t *testing.T) {
	d := &shared{
		name: "one", own: []*Host{{ID: "mine"}},
		others: []remoteHost{{Host: Host{ID: "theirs"}, row: hostRow{Server: "two"}}},
	}
	for host, want := range map[string]string{"mine": "one", "theirs": "two", "gone": ""} {
		if got := d.serverOf(host); got != want {
			t.Errorf("%s is of %q, want %q", host, got, want)
		}
	}
}

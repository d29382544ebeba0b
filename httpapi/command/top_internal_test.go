package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi/client"
)

func TestTopBeginsWithWhatIsWrongTenIncidentsAtMost(t *testing.T) {
	s := client.State{}
	for range 12 {
		s.Incidents = append(s.Incidents, client.Incident{
			Cause: "crashLoop", Severity: "warning", Kind: "endpoint", ID: "e", Name: "sdxl\x1b[31m", Since: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC),
			Who: []string{"alice", "bob"}, More: 3, Act: "Mend the image.", Detail: "no module named torch",
		})
	}
	var b bytes.Buffer
	if err := (&view{State: &s}).write(&b); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	for _, want := range []string{"WARNING: crashLoop of sdxl", "affects alice, bob and 3 more\n  no module named torch\n  Mend the image.\n", "and 2 more\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("top lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "\x1b") || strings.Count(got, "WARNING") != shownIncidents || strings.Index(got, "WARNING") > strings.Index(got, "ENDPOINT") {
		t.Errorf("top is\n%q", got)
	}
}

func TestTopShowsTheServersOfAClusterAndNamesOfEndpoints(t *testing.T) {
	for body, want := range map[string][]string{
		`{"servers":[{"name":"one","version":"2.0","state":"active"},{"name":"two","version":"1.9","state":"drained"}]}`: {"SERVER  STATE    VERSION", "two     drained  1.9"},
		`{"servers":[{"name":"one","version":"2.0","state":"active"}]}`:                                                  {"ENDPOINT"},
	} {
		var s client.State
		var b bytes.Buffer
		v := view{State: &s, Endpoints: []topRow{{ID: "1fapl1qzw0sndl", Name: "sdxl", State: stateOf("active", true)}}}
		if err := errors.Join(json.Unmarshal([]byte(body), &s), v.write(&b)); err != nil {
			t.Fatal(err)
		}
		for _, part := range append(want, "1fapl1qzw0sndl  sdxl  -      paused") {
			if !strings.Contains(b.String(), part) {
				t.Errorf("top lacks %q:\n%s", part, b.String())
			}
		}
		if one := len(s.Servers) == 1; one == strings.Contains(b.String(), "SERVER") {
			t.Errorf("top with %d servers:\n%s", len(s.Servers), b.String())
		}
	}
}

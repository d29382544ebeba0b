package queue_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/podyard/podyard/serverless/queue"
)

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestAnInvalidTraceparentDropsBothHeaders(t *testing.T) {
	for s, valid := range map[string]bool{
		parent: true,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff":       true,
		"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01":       true,
		"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what":  true,
		"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.what":  false,
		"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-wh at": false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what":  false,
		"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01":       false,
		"0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01":        false,
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01":       false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01":       false,
		"00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01":       false,
		"00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01":       false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0":        false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x":       false,
		"00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01":       false,
		"00-4bf92f3577b34da6a3ce929d0e0e473600-00f067aa0ba902b7-01":     false,
		"": false,
		"01" + parent[2:] + "-" + strings.Repeat("x", 200): true,
		"01" + parent[2:] + "-" + strings.Repeat("x", 201): false,
	} {
		want := queue.Trace{}
		if valid {
			want = queue.Trace{Parent: s, State: "a=1"}
		}
		if got := (queue.Trace{Parent: s, State: "a=1"}).Valid(); got != want {
			t.Errorf("traceparent %q gives %+v, want %+v", s, got, want)
		}
	}
}

func TestAnInvalidTracestateIsDroppedAlone(t *testing.T) {
	long := strings.Repeat("v", 256)
	for s, want := range map[string]string{
		"":                              "",
		"a=1":                           "a=1",
		" a=1 ,\tb=2,, ":                "a=1,b=2",
		"0t@sys=1,a_-*/=\"x\\\"":        "0t@sys=1,a_-*/=\"x\\\"",
		"a=b c":                         "a=b c",
		"a=1,a=2":                       "",
		"A=1":                           "",
		"@a=1":                          "",
		"a":                             "",
		"a=":                            "",
		"=1":                            "",
		"a=1=2":                         "",
		"a=ä":                           "",
		"a=1,b=\x01":                    "",
		"a=" + long:                     "a=" + long,
		"a=" + long + "v":               "",
		strings.Repeat("k", 256) + "=1": strings.Repeat("k", 256) + "=1",
		strings.Repeat("k", 257) + "=1": "",
	} {
		if got := (queue.Trace{Parent: parent, State: s}).Valid(); got != (queue.Trace{Parent: parent, State: want}) {
			t.Errorf("tracestate %q gives %+v, want %q and the traceparent", s, got, want)
		}
	}
}

func TestATracestateHas32EntriesAnd512CharactersAtMost(t *testing.T) {
	var many []string
	for i := range 33 {
		many = append(many, fmt.Sprintf("k%d=1", i))
	}
	v := strings.Repeat("v", 100)
	w := strings.Repeat("w", 200)
	for s, want := range map[string]string{
		strings.Join(many[:32], ","):                                      strings.Join(many[:32], ","),
		strings.Join(many, ","):                                           "",
		"a=" + w + ",b=1,c=" + w + ",d=" + v + ",e=" + v:                  "a=" + w + ",b=1,d=" + v + ",e=" + v,
		"a=" + v + ",b=" + v + ",c=" + v + ",d=" + v + ",e=" + v + ",f=1": "a=" + v + ",b=" + v + ",c=" + v + ",d=" + v,
	} {
		if got := (queue.Trace{Parent: parent, State: s}).Valid().State; got != want {
			t.Errorf("tracestate %q gives %q, want %q", s, got, want)
		}
	}
}

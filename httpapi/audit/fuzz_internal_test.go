package audit

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// Whatever a client sends: each record is one line, which is one JSON object.
func FuzzLine(f *testing.F) {
	f.Add("alice", "/v2/pods\n", "curl\r\n{}", "192.0.2.1", int64(0))
	f.Add("\x00\xff\xfe", "/\u2028\"\\", strings.Repeat("\xf0\x9f", 400), "[::1]", int64(1)<<62)
	f.Fuzz(func(t *testing.T, user, path, agent, source string, at int64) {
		r := Record{Time: time.Unix(at, 0), Kind: Change, User: user, Path: path, Agent: agent, Source: source, Owner: user, Key: agent, Record: path}
		b := line(&r)
		text, ended := bytes.CutSuffix(b, []byte("\n"))
		if !ended || bytes.ContainsAny(text, "\r\n") || !utf8.Valid(text) {
			t.Fatalf("the line is %q", b)
		}
		var back Record
		if err := json.Unmarshal(text, &back); err != nil || !cmp.Equal(r, back) {
			t.Fatalf("%q was read back as %+v, %v, want %+v", b, back, err, r)
		}
		if utf8.ValidString(user) && len(user) <= MaxText && back.User != user || len(back.Path) > 3*MaxText {
			t.Errorf("%q was kept as %q", user, back.User)
		}
	})
}

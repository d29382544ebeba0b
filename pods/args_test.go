package pods_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
)

func TestArgsAreSplitAsAShellSplits(t *testing.T) {
	for in, want := range map[string][]string{
		"":                          nil,
		" \t\n ":                    nil,
		"a b  c":                    {"a", "b", "c"},
		`'a b' "c d"`:               {"a b", "c d"},
		`a'b'"c"d`:                  {"abcd"},
		`'' ""`:                     {"", ""},
		`a\ b \'c \"d \\`:           {"a b", "'c", `"d`, `\`},
		`"a\"b\\c\$d\` + "`" + `e"`: {`a"b\c$d` + "`e"},
		`"a\nb"`:                    {`a\nb`},
		`'a\nb'`:                    {`a\nb`},
		`\n`:                        {"n"},
		"a\\\nb \"c\\\nd\"":         {"ab", "cd"},
		"\"a\nb\" 'c\nd'":           {"a\nb", "c\nd"},
		`$HOME *.go a;b|c>d`:        {"$HOME", "*.go", "a;b|c>d"},
		`--name="x y" -p 80`:        {"--name=x y", "-p", "80"},
		"ü 'é ö'":                   {"ü", "é ö"},
	} {
		_, got, err := pods.ParseCommand(in)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("ParseCommand(%q): %v (-want +got):\n%s", in, err, diff)
		}
	}
}

func TestArgsThatAShellWouldNotTakeAreErrors(t *testing.T) {
	for _, in := range []string{`'`, `"`, `a 'b`, `a "b`, `a\`, `"a\"`, `"a\`, "a\x00b", "'\x00'", "\"\x00\"", "\\\x00"} {
		if _, got, err := pods.ParseCommand(in); err == nil {
			t.Errorf("ParseCommand(%q) = %q, want an error", in, got)
		}
	}
}

// FuzzArgsQuotedAreOneWord checks that single quotes protect everything but themselves.
func FuzzArgsQuotedAreOneWord(f *testing.F) {
	f.Add("a b\\\"$")
	f.Fuzz(func(t *testing.T, s string) {
		for _, c := range []byte(s) {
			if c == '\'' || c == 0 {
				return
			}
		}
		_, got, err := pods.ParseCommand("x '" + s + "' y")
		if diff := cmp.Diff([]string{"x", s, "y"}, got); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		_, _, _ = pods.ParseCommand(s) // does not panic
	})
}

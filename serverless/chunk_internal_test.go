package serverless

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestItemWithinTheLimitIsNotSplit(t *testing.T) {
	for _, item := range []string{`{"output":"abc"}`, `{"output":1}`, `[]`, ``} {
		if diff := cmp.Diff([][]byte{[]byte(item)}, splitItem([]byte(item), 30)); diff != "" {
			t.Errorf("splitItem(%s) (-want +got):\n%s", item, diff)
		}
	}
}

func TestLongStringIsSplitBetweenCharacters(t *testing.T) {
	for _, c := range []struct {
		name, item string
		limit      int
		want       []string
	}{
		{"plain letters", `{"output":"abcdefghijklmnopqrstuvwxyz"}`, 28, []string{`{"output":"abcdefghijklmno"}`, `{"output":"pqrstuvwxyz"}`}},
		{"a character of three bytes is not cut", `{"output":"0123456789ab€€€"}`, 28, []string{`{"output":"0123456789ab€"}`, `{"output":"€€"}`}},
		{"an escape is not cut", `{"output":"0123456789abcd\n\n\n"}`, 28, []string{`{"output":"0123456789abcd"}`, `{"output":"\n\n\n"}`}},
		{"a numbered escape is not cut", `{"output":"0123456789ab\u20ac\u20ac"}`, 28, []string{`{"output":"0123456789ab"}`, `{"output":"\u20ac\u20ac"}`}},
		{"a pair of surrogates is not cut", `{"output":"01234567\uD83D\ude00x"}`, 28, []string{`{"output":"01234567"}`, `{"output":"\uD83D\ude00x"}`}},
		{"a lone surrogate is a character", `{"output":"012345678\ud83dx\ude00"}`, 28, []string{`{"output":"012345678\ud83d"}`, `{"output":"x\ude00"}`}},
		{"other members stay with the first", `{"m":{"output":1},"output":"abcdefghijklmnop","z":[2]}`, 50,
			[]string{`{"m":{"output":1},"output":"abcdefghijkl","z":[2]}`, `{"output":"mnop"}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, texts(splitItem([]byte(c.item), c.limit))); diff != "" {
				t.Errorf("splitItem (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnlyStringsAreSplit(t *testing.T) {
	for _, item := range []string{
		`{"output":["0123456789","0123456789"]}`,
		`{"output":{"output":"0123456789012345"}}`,
		`{"outputs":"0123456789012345678901234"}`,
		`["output","012345678901234567890123456"]`,
		`{"output":"0123456789012345678901234567`,
	} {
		if got := splitItem([]byte(item), 30); len(got) != 1 || string(got[0]) != item {
			t.Errorf("splitItem(%s) = %q, want it whole", item, got)
		}
	}
}

// Whatever the string and the limit, the pieces joined are the string that was sent.
func TestPiecesJoinedAreTheString(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{
			"a", "\"", "\\", "\n", "\u0000", "é", "€", "😀", "\u2028", "<", "/",
		})).Draw(t, "text"), "")
		value, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		limit := rapid.IntRange(25, 80).Draw(t, "limit")
		var joined strings.Builder
		for _, b := range splitItem(appendItem(value), limit) {
			var v struct{ Output string }
			if err := json.Unmarshal(b, &v); err != nil {
				t.Fatalf("piece %s: %v", b, err)
			}
			if len(b) > limit || !utf8.Valid(b) {
				t.Fatalf("piece %q has %d bytes, want at most %d, all UTF-8", b, len(b), limit)
			}
			joined.WriteString(v.Output)
		}
		if joined.String() != text {
			t.Fatalf("joined = %q, want %q", joined.String(), text)
		}
	})
}

func texts(bs [][]byte) (s []string) {
	for _, b := range bs {
		s = append(s, string(b))
	}
	return s
}

package podhost_test

import (
	"slices"
	"testing"

	"github.com/podyard/podyard/internal/podhost"
)

func TestALineEndsWithANewlineOrWhereAProgressBarBeginsAgain(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want []string // the lines
		rest string
	}{
		{"", nil, ""},
		{"one\ntwo\n", []string{"one", "two"}, ""},
		{"one\r\ntwo", []string{"one"}, "two"},
		{"10 %\r20 %\r30 %", []string{"10 %", "20 %"}, "30 %"},
		{"\r10 %\r", []string{""}, "10 %\r"}, // more may come: "\n"
		{"half\r", nil, "half\r"},
		{"\n\n", []string{"", ""}, ""},
	} {
		var got []string
		rest := []byte(tt.in)
		for {
			text, size := podhost.LineEnd(rest)
			if size < 0 {
				break
			}
			got, rest = append(got, string(rest[:text])), rest[size:]
		}
		if !slices.Equal(got, tt.want) || string(rest) != tt.rest {
			t.Errorf("the lines of %q are %q and %q is left, want %q and %q", tt.in, got, rest, tt.want, tt.rest)
		}
	}
}

// Package terminal keeps texts of others from acting on the terminal that shows them.
package terminal

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// IsCommand reports whether a terminal may do something with r instead of showing it: control
// characters, C1 among them, and those that change the direction of text.
func IsCommand(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }

// Clean replaces what a terminal may take for a command by blanks.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if IsCommand(r) {
			return ' '
		}
		return r
	}, s)
}

// EscapeJSON escapes the characters of JSON documents that a terminal may take for a command,
// although JSON allows them as they are: U+007F to U+009F, and those that change the direction
// of text. The documents mean the same.
func EscapeJSON(b []byte) []byte {
	if !bytes.ContainsFunc(b, isHidden) {
		return b
	}
	var out []byte
	for _, r := range string(b) {
		if isHidden(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// isHidden reports whether EscapeJSON escapes r.
func isHidden(r rune) bool { return r <= 0xffff && r != '\n' && IsCommand(r) }

// JSON returns a writer of JSON documents to w that does EscapeJSON to them. Each call of Write
// has whole documents.
func JSON(w io.Writer) io.Writer { return escaper{w} }

type escaper struct{ w io.Writer }

// Write implements io.Writer.
func (e escaper) Write(b []byte) (int, error) {
	if _, err := e.w.Write(EscapeJSON(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

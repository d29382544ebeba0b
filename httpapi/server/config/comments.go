package config

import "bytes"

// withoutComments is text with blanks in the place of comments, so that every other byte
// stays at its offset. What it does not understand it leaves to the parser to refuse.
func withoutComments(text []byte) []byte {
	out := bytes.Clone(text)
	for i := 0; i < len(out); {
		switch rest := out[i:]; {
		case rest[0] == '"':
			i += stringEnd(rest)
		case bytes.HasPrefix(rest, []byte("//")):
			i += blank(rest, bytes.IndexByte(rest, '\n'))
		case bytes.HasPrefix(rest, []byte("/*")):
			end := bytes.Index(rest[2:], []byte("*/"))
			if end < 0 {
				return out // the parser says where the comment begins that does not end
			}
			i += blank(rest, end+4)
		default:
			i++
		}
	}
	return out
}

// stringEnd is where a JSON string ends, or the text.
func stringEnd(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"', '\n': // no string has a line break
			return i + 1
		}
	}
	return len(text)
}

// blank overwrites the first n bytes, all of them if n is negative, but no line breaks.
func blank(text []byte, n int) int {
	if n < 0 {
		n = len(text)
	}
	for i := range text[:n] {
		if text[i] != '\n' {
			text[i] = ' '
		}
	}
	return n
}

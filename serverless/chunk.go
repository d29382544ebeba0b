package serverless

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// The queue stores a chunk as an item: a JSON object with the member output and the other
// members that the worker sent with it (metrics). Readers get the item unchanged.

// appendItem returns the item of a chunk.
func appendItem(chunk []byte) []byte {
	b := make([]byte, 0, len(chunk)+len(`{"output":}`))
	b = append(b, `{"output":`...)
	b = append(b, chunk...)
	return append(b, '}')
}

// splitItem splits an item that is longer than limit and whose output is a string. Each piece
// holds a part of the string, cut between characters, so that the joined outputs equal the
// string that the worker sent. Other members stay in the first piece. Any other item is
// returned whole.
func splitItem(item []byte, limit int) [][]byte {
	if len(item) <= limit {
		return [][]byte{item}
	}
	head, text, tail, ok := findOutput(item)
	if !ok || len(head)+len(tail)+len(`""`)+escapeMax > limit {
		return [][]byte{item}
	}
	var items [][]byte
	for {
		n := splitPoint(text, limit-len(head)-len(tail)-len(`""`))
		b := make([]byte, 0, len(head)+len(tail)+n+len(`""`))
		b = append(append(b, head...), '"')
		b = append(append(b, text[:n]...), '"')
		items = append(items, append(b, tail...))
		if text = text[n:]; len(text) == 0 {
			return items
		}
		head, tail = []byte(`{"output":`), []byte(`}`)
	}
}

// findOutput finds the string output of an item. text is the part between its quotes, head
// and tail are the parts before and after text. ok is false if the item is not an object or
// its output is not a string.
func findOutput(item []byte) (head, text, tail []byte, ok bool) {
	d := json.NewDecoder(bytes.NewReader(item))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, nil, false
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, nil, nil, false
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, nil, nil, false
		}
		if name == "output" {
			if v[0] != '"' {
				return nil, nil, nil, false
			}
			end := int(d.InputOffset())
			start := end - len(v)
			return item[:start], item[start+1 : end-1], item[end:], true
		}
	}
	return nil, nil, nil, false
}

// escapeMax is the length of the longest character in a JSON string: two escaped surrogates.
const escapeMax = len(`\ud83d\ude00`)

// splitPoint returns the length of the longest prefix of text that has at most limit bytes
// and ends between characters. text is the inside of a JSON string. limit is at least
// escapeMax.
func splitPoint(text []byte, limit int) int {
	if len(text) <= limit {
		return len(text)
	}
	n := 0
	for {
		w := charLen(text[n:])
		if n+w > limit {
			return n
		}
		n += w
	}
}

// charLen returns the length in bytes of the first character of text, the inside of a JSON
// string.
func charLen(text []byte) int {
	switch {
	case text[0] != '\\':
		_, w := utf8.DecodeRune(text)
		return w
	case text[1] != 'u':
		return len(`\n`)
	case isSurrogate(text, 'd', '8', 'b') && isSurrogate(text[len(`\ud83d`):], 'd', 'c', 'f'):
		return escapeMax
	}
	return len(`\u0000`)
}

// isSurrogate reports whether text begins with a \u escape whose first hex digit is d and
// whose second lies between lo and hi. The high surrogates are d8 to db, the low ones dc to
// df.
func isSurrogate(text []byte, d, lo, hi byte) bool {
	if len(text) < len(`\ud83d`) || text[0] != '\\' || text[1] != 'u' {
		return false
	}
	lower := func(c byte) byte {
		if 'A' <= c && c <= 'F' {
			return c + 'a' - 'A'
		}
		return c
	}
	return lower(text[2]) == d && lo <= lower(text[3]) && lower(text[3]) <= hi
}

package serverless

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// A chunk enters the queue as an item: a JSON object with the member output and whatever
// else the worker said of it (metrics). That is how readers get it.

// appendItem makes the item of a chunk.
func appendItem(chunk []byte) []byte {
	b := make([]byte, 0, len(chunk)+len(`{"output":}`))
	b = append(b, `{"output":`...)
	b = append(b, chunk...)
	return append(b, '}')
}

// splitItem makes several items of one whose output is a string and that is longer than
// limit: each holds a piece of the string, cut between characters, so that a reader who
// joins the outputs has what the worker sent, byte by byte. Other members stay with the
// first piece. Any other item is left whole.
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
		n := cut(text, limit-len(head)-len(tail)-len(`""`))
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

// findOutput finds the string that is the output of an item: text is what stands between
// its quotes, head and tail what stands before and after them. ok is false if the item is
// not an object or its output not a string.
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

// escapeMax is the longest character in a JSON string: two escaped surrogates.
const escapeMax = len(`\ud83d\ude00`)

// cut is the length of the longest piece at the beginning of the inside of a JSON string
// that has at most limit bytes and ends between characters. limit is at least escapeMax.
func cut(text []byte, limit int) int {
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

// charLen is how many bytes the first character of the inside of a JSON string takes.
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

// isSurrogate reports whether text begins with an escape whose first digit is d and whose
// second lies between lo and hi: the high surrogates are d8 to db, the low ones dc to df.
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

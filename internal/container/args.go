package container

import (
	"errors"
	"strings"
)

// SplitArgs splits a string into words as a POSIX shell does: white space separates words,
// and quotes and backslashes protect it. Nothing is expanded: dollar signs, globs and
// operators are ordinary characters.
func SplitArgs(s string) ([]string, error) {
	w := shellSplitter{rest: s}
	for w.rest != "" {
		c := w.rest[0]
		w.rest = w.rest[1:]
		var err error
		switch c {
		case ' ', '\t', '\n', '\r':
			w.end()
		case '\'':
			err = w.single()
		case '"':
			err = w.double()
		case '\\':
			err = w.escape()
		case 0:
			err = errors.New("holds a NUL byte")
		default:
			w.add(c)
		}
		if err != nil {
			return nil, err
		}
	}
	w.end()
	return w.list, nil
}

// shellSplitter collects the words of a string.
type shellSplitter struct {
	rest string
	list []string
	word strings.Builder
	open bool // a word has started; it may be empty: ''
}

func (w *shellSplitter) add(c byte) {
	w.word.WriteByte(c)
	w.open = true
}

func (w *shellSplitter) end() {
	if w.open {
		w.list = append(w.list, w.word.String())
	}
	w.word.Reset()
	w.open = false
}

// single reads up to the closing quote. No character in between is special.
func (w *shellSplitter) single() error {
	text, rest, ok := strings.Cut(w.rest, "'")
	if !ok {
		return errors.New("has a single quote that is not closed")
	}
	if strings.ContainsRune(text, 0) {
		return errors.New("holds a NUL byte")
	}
	w.word.WriteString(text)
	w.open, w.rest = true, rest
	return nil
}

// double reads up to the closing quote. A backslash is removed only before a character that
// is special in double quotes.
func (w *shellSplitter) double() error {
	w.open = true
	for w.rest != "" {
		c := w.rest[0]
		w.rest = w.rest[1:]
		switch {
		case c == '"':
			return nil
		case c == 0:
			return errors.New("holds a NUL byte")
		case c == '\\' && w.rest != "" && strings.IndexByte("\"\\$`\n", w.rest[0]) >= 0:
			if w.rest[0] != '\n' {
				w.add(w.rest[0])
			}
			w.rest = w.rest[1:]
		default:
			w.add(c)
		}
	}
	return errors.New("has a double quote that is not closed")
}

// escape reads the character after a backslash. A line break there is dropped.
func (w *shellSplitter) escape() error {
	switch {
	case w.rest == "":
		return errors.New("ends with a backslash")
	case w.rest[0] == 0:
		return errors.New("holds a NUL byte")
	case w.rest[0] != '\n':
		w.add(w.rest[0])
	}
	w.rest = w.rest[1:]
	return nil
}

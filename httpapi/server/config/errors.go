package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// An Error is something in a configuration that cannot be.
type Error struct {
	File         string // as it was named; empty: there is none
	Line, Column int    // from 1, in characters; 0 where they are not known
	Field        string // as in keys[0].scopes; empty for the file as a whole
	Err          error
}

func (e *Error) Error() string {
	place := e.File
	if e.Line > 0 {
		place += fmt.Sprintf(":%d:%d", e.Line, e.Column)
	}
	var parts []string
	for _, s := range [...]string{place, e.Field, e.Err.Error()} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, ": ")
}

// Unwrap is what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// A fieldError is an Error before its place in the file is known.
type fieldError struct {
	at  jsontext.Pointer
	err error
}

func (e *fieldError) Error() string {
	if e.at == "" {
		return e.err.Error()
	}
	return formatPath(e.at) + ": " + e.err.Error()
}

func (e *fieldError) Unwrap() error { return e.err }

func errorAt(place jsontext.Pointer, format string, args ...any) error {
	return &fieldError{place, fmt.Errorf(format, args...)}
}

// elementAt is the place of an element of a list.
func elementAt(list jsontext.Pointer, i int) jsontext.Pointer {
	return list.AppendToken(strconv.Itoa(i))
}

// formatPath writes a place as a reader of the file would: keys[0].scopes,
// images["local/py"].dir.
func formatPath(place jsontext.Pointer) string {
	var b strings.Builder
	for token := range place.Tokens() {
		switch {
		case regexp.MustCompile(`^[0-9]+$`).MatchString(token):
			b.WriteString("[" + token + "]")
		case !regexp.MustCompile(`^[A-Za-z0-9_-]+$`).MatchString(token):
			b.WriteString("[" + strconv.Quote(token) + "]")
		default:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(token)
		}
	}
	return b.String()
}

// located is err as an Error, with line and column where they can be found.
func (c *Config) located(err error) error {
	e := &Error{File: c.file, Err: err}
	var field *fieldError
	var syntax *jsontext.SyntacticError
	var all fieldErrors
	switch {
	case errors.As(err, &syntax):
		e.Line, e.Column = position(c.source, int(syntax.ByteOffset))
		e.Field, e.Err = formatPath(syntax.JSONPointer), syntax.Err
	case errors.As(err, &all):
		e.Line, e.Column = position(c.source, findOffset(c.source, all[0].at))
	case errors.As(err, &field):
		e.Line, e.Column = position(c.source, findOffset(c.source, field.at))
		e.Field, e.Err = formatPath(field.at), field.err
	}
	return e
}

// position is the line and the column of an offset, as editors count them; zeros for one
// outside of the text.
func position(text []byte, offset int) (line, column int) {
	if offset < 0 || offset > len(text) {
		return 0, 0
	}
	before := text[:offset]
	begin := bytes.LastIndexByte(before, '\n') + 1
	return bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[begin:]) + 1
}

// findOffset is where the value at place begins, or the one it should be in.
func findOffset(text []byte, place jsontext.Pointer) int {
	for ; ; place = place.Parent() {
		d := jsontext.NewDecoder(bytes.NewReader(text))
		for {
			begin := len(text) - len(bytes.TrimLeft(text[d.InputOffset():], " \t\r\n:,"))
			if _, err := d.ReadToken(); err != nil {
				break
			}
			if d.StackPointer() == place {
				return begin
			}
		}
		if place == "" {
			return -1
		}
	}
}

// explain says what is wrong with the file in words of the file.
func explain(err error) error {
	wrong := (*json.SemanticError)(nil)
	if !errors.As(err, &wrong) {
		return err
	}
	switch {
	case errors.Is(err, json.ErrUnknownName):
		return errorAt(wrong.JSONPointer, "unknown field")
	case wrong.JSONPointer == "":
		return errorAt("", "must be a JSON object")
	case errors.Is(err, strconv.ErrSyntax):
		return errorAt(wrong.JSONPointer, "must be an integer")
	case errors.As(err, new(*time.ParseError)):
		return errorAt(wrong.JSONPointer, "must be a time like 2027-01-01T00:00:00Z")
	case wrong.Err != nil:
		return errorAt(wrong.JSONPointer, "%w", wrong.Err)
	}
	return errorAt(wrong.JSONPointer, "cannot be a JSON %s", kindName(wrong.JSONKind))
}

// kindName is what a reader calls a kind of JSON value.
func kindName(k jsontext.Kind) string {
	switch k {
	case '{':
		return "object"
	case '[':
		return "array"
	}
	return k.String()
}

// fieldErrors are several, of which the first says where to look. There is at least one.
type fieldErrors []*fieldError

func (l fieldErrors) Error() string {
	var all []string
	for _, err := range l {
		all = append(all, err.Error())
	}
	return strings.Join(all, "; ")
}

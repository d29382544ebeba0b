package main

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

// A misfit is something in the configuration that cannot be.
type misfit struct {
	at  jsontext.Pointer
	err error
}

func (m *misfit) Error() string {
	if m.at == "" {
		return m.err.Error()
	}
	return spellPath(m.at) + ": " + m.err.Error()
}

func (m *misfit) Unwrap() error { return m.err }

func wrongAt(place jsontext.Pointer, format string, args ...any) error {
	return &misfit{place, fmt.Errorf(format, args...)}
}

// at is the place of an element of a list.
func at(list jsontext.Pointer, i int) jsontext.Pointer { return list.AppendToken(strconv.Itoa(i)) }

// spellPath writes a place as a reader of the file would: keys[0].scopes,
// images["local/py"].dir.
func spellPath(place jsontext.Pointer) string {
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

// inConfig adds to err the file, and the line and column where they are known.
func (s *settings) inConfig(err error) error {
	where := s.configFile
	var wrong *misfit
	var syntax *jsontext.SyntacticError
	switch {
	case errors.As(err, &syntax):
		where += position(s.source, int(syntax.ByteOffset))
		err = syntax.Err
		if syntax.JSONPointer != "" {
			err = &misfit{syntax.JSONPointer, err}
		}
	case errors.As(err, &wrong):
		where += position(s.source, find(s.source, wrong.at))
	}
	return fmt.Errorf("-config %s: %w", where, err)
}

// position is the line and the column of an offset, as editors count them.
func position(text []byte, offset int) string {
	if offset < 0 || offset > len(text) {
		return ""
	}
	before := text[:offset]
	line := bytes.LastIndexByte(before, '\n') + 1
	return fmt.Sprintf(":%d:%d", bytes.Count(before, []byte("\n"))+1, utf8.RuneCount(before[line:])+1)
}

// find is where the value at place begins, or the one it should be in.
func find(text []byte, place jsontext.Pointer) int {
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
		return wrongAt(wrong.JSONPointer, "unknown field")
	case wrong.JSONPointer == "":
		return wrongAt("", "must be a JSON object")
	case errors.Is(err, strconv.ErrSyntax):
		return wrongAt(wrong.JSONPointer, "must be an integer")
	case errors.As(err, new(*time.ParseError)):
		return wrongAt(wrong.JSONPointer, "must be a time like 2027-01-01T00:00:00Z")
	case wrong.Err != nil:
		return wrongAt(wrong.JSONPointer, "%w", wrong.Err)
	}
	return wrongAt(wrong.JSONPointer, "cannot be a JSON %s", kindName(wrong.JSONKind))
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

// oneLine is several errors, of which the first says where to look.
type oneLine []error

func (l oneLine) Error() string {
	var all []string
	for _, err := range l {
		all = append(all, err.Error())
	}
	return strings.Join(all, "; ")
}

func (l oneLine) Unwrap() []error { return l }

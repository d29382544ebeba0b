package httpapi

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/podyard/podyard/problem"
)

// An object is a JSON object being taken apart. Every getter that finds a member of the
// wrong type records a fault and answers as if the member were absent; unknown() records
// the members that nobody asked for. So one pass finds everything that is wrong.
type object struct {
	path    string
	faults  *problem.Violations
	members []member
	index   map[string]int // of the members by name, once there are many
}

// many is from how many members on they are looked up in an index: an object of a
// megabyte must not take a minute.
const many = 16

type member struct {
	name  string
	value jsontext.Value
	taken bool
}

// Ways to read a body.
type strictness bool

const (
	// throughout refuses a name that occurs twice at any depth.
	throughout strictness = true
	// envelope refuses it at the top only: what is below belongs to somebody else.
	envelope strictness = false
)

// parse reads a body that is one JSON object. What does not parse is an error at once
// (400), and so is a body that is JSON and no object (422).
func parse(body []byte, how strictness, faults *problem.Violations) (*object, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, problem.Newf(problem.Malformed, "the body is empty: it must be a JSON object")
	}
	dec := decoder(body, how)
	o := &object{faults: faults}
	isObject := dec.PeekKind() == '{'
	if isObject {
		if err := o.read(dec, body); err != nil {
			return nil, err
		}
	} else if err := dec.SkipValue(); err != nil {
		return nil, syntaxError(err)
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, problem.Newf(problem.Malformed, "the body is not JSON: there is something after its end, at byte %d", dec.InputOffset())
	}
	if !isObject { // nothing else can be said about it
		faults.Add(problem.Invalid, "", "the body must be a JSON object")
		return nil, faults.Err(nil)
	}
	return o, nil
}

// decoder reads src. Half a surrogate pair, written as an escape, is JSON, though no
// character: in what belongs to somebody else it may be. Bytes that are no UTF-8 may not,
// which parse has seen to when a piece of a body is read.
func decoder(src []byte, how strictness) *jsontext.Decoder {
	free := how == envelope && utf8.Valid(src)
	return jsontext.NewDecoder(bytes.NewBuffer(src), jsontext.AllowDuplicateNames(how == envelope), jsontext.AllowInvalidUTF8(free))
}

// read takes the members of the object that comes next in src, which dec reads. Their
// values are pieces of src.
func (o *object) read(dec *jsontext.Decoder, src []byte) error {
	if _, err := dec.ReadToken(); err != nil {
		return syntaxError(err)
	}
	for dec.PeekKind() != '}' {
		t, err := dec.ReadToken()
		if err != nil {
			return syntaxError(err)
		}
		name := t.String()
		if o.find(name) != nil {
			return problem.Newf(problem.Malformed, "the body is not JSON: %q is there twice, at byte %d", name, dec.InputOffset())
		}
		v, err := dec.ReadValue()
		if err != nil {
			return syntaxError(err)
		}
		end := dec.InputOffset()
		o.add(member{name: name, value: src[end-int64(len(v)) : end : end]})
	}
	_, err := dec.ReadToken()
	if err != nil {
		return syntaxError(err)
	}
	return nil
}

// maxPointer is how much is told of a place: a body that is too deep has ten thousand
// names in it. The byte says the rest.
const maxPointer = 200

func syntaxError(err error) error {
	var s *jsontext.SyntacticError
	if !errors.As(err, &s) {
		return problem.Newf(problem.Malformed, "the body is not JSON: it ends too early")
	}
	if at := string(s.JSONPointer); at != "" {
		if len(at) > maxPointer {
			at = strings.ToValidUTF8(at[:maxPointer], "") + "..."
		}
		return problem.Newf(problem.Malformed, "the body is not JSON: %s at %s, byte %d", s.Err, at, s.ByteOffset)
	}
	return problem.Newf(problem.Malformed, "the body is not JSON: %s at byte %d", s.Err, s.ByteOffset)
}

func (o *object) add(m member) {
	o.members = append(o.members, m)
	switch n := len(o.members); {
	case n == many:
		o.index = make(map[string]int, 2*many)
		for i := range o.members {
			o.index[o.members[i].name] = i
		}
	case n > many:
		o.index[m.name] = n - 1
	}
}

func (o *object) find(name string) *member {
	if o.index != nil {
		if i, ok := o.index[name]; ok {
			return &o.members[i]
		}
		return nil
	}
	for i := range o.members {
		if o.members[i].name == name {
			return &o.members[i]
		}
	}
	return nil
}

// escape makes a name a part of a JSON pointer.
var escape = strings.NewReplacer("~", "~0", "/", "~1")

// pointer is the JSON pointer of a member.
func (o *object) pointer(name string) string { return o.path + "/" + escape.Replace(name) }

// take is the member's value if it is there and of one of the kinds, which want names.
func (o *object) take(name, want string, kinds string) jsontext.Value {
	m := o.find(name)
	if m == nil {
		return nil
	}
	m.taken = true
	if !strings.ContainsRune(kinds, rune(m.value.Kind())) {
		o.faults.Add(problem.Invalid, o.pointer(name), "must be %s", want)
		return nil
	}
	return m.value
}

// has reports whether the member is there, of whatever type.
func (o *object) has(name string) bool { return o.find(name) != nil }

// isNull reports whether the member is null, and takes it then.
func (o *object) isNull(name string) bool {
	m := o.find(name)
	if m == nil || m.value.Kind() != 'n' {
		return false
	}
	m.taken = true
	return true
}

func (o *object) str(name string) *string {
	v := o.take(name, "a string", `"`)
	if v == nil {
		return nil
	}
	s := unquote(v)
	return &s
}

// text is str for a field whose zero value means absent.
func (o *object) text(name string) string {
	if s := o.str(name); s != nil {
		return *s
	}
	return ""
}

func (o *object) flag(name string) *bool {
	v := o.take(name, "true or false", "tf")
	if v == nil {
		return nil
	}
	b := v.Kind() == 't'
	return &b
}

// safe is the largest integer up to which all have a float64 of their own.
const safe = 1 << 53

// integer takes a number without a fraction, however it is written. One that is beyond
// safe is safe: no bound of a field is that far.
func (o *object) integer(name string) *int {
	v := o.take(name, "an integer", "0")
	if v == nil {
		return nil
	}
	if n, err := strconv.Atoi(string(v)); err == nil {
		n = max(min(n, safe), -safe)
		return &n
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if f != math.Trunc(f) || err != nil && !errors.Is(err, strconv.ErrRange) {
		o.faults.Add(problem.Invalid, o.pointer(name), "must be an integer")
		return nil
	}
	n := int(max(min(f, safe), -safe))
	return &n
}

// object takes a nested object.
func (o *object) object(name string) *object {
	v := o.take(name, "an object", "{")
	if v == nil {
		return nil
	}
	return o.nested(name, v)
}

// nested takes a value apart that is known to be an object and to parse.
func (o *object) nested(name string, v jsontext.Value) *object {
	sub := &object{path: o.pointer(name), faults: o.faults}
	if err := sub.read(decoder(v, envelope), v); err != nil {
		o.faults.Add(problem.Malformed, sub.path, "%s", problem.Of(err).Detail)
	}
	return sub
}

// checkNames is an error when the member is an object and has a name twice: parse saw to
// that only where bodies are strict throughout.
func (o *object) checkNames(name string) error {
	m := o.find(name)
	if m == nil || m.value.Kind() != '{' {
		return nil
	}
	sub := &object{}
	if err := sub.read(decoder(m.value, envelope), m.value); err != nil {
		return problem.Newf(problem.Malformed, "%s: %s", o.pointer(name), problem.Of(err).Detail)
	}
	return nil
}

// list takes an array apart; nil when it is absent.
func (o *object) list(name string) []jsontext.Value {
	v := o.take(name, "an array", "[")
	if v == nil {
		return nil
	}
	vs := []jsontext.Value{}
	dec := decoder(v, envelope)
	_, _ = dec.ReadToken() // it is known to parse
	for dec.PeekKind() != ']' {
		e, err := dec.ReadValue()
		if err != nil {
			return vs
		}
		vs = append(vs, bytes.Clone(e))
	}
	return vs
}

// strings takes an array of strings; nil when it is absent. An element of another type is
// an empty one, so that the others keep their places.
func (o *object) strings(name string) []string {
	vs := o.list(name)
	if vs == nil {
		return nil
	}
	ss := make([]string, 0, len(vs))
	for i, v := range vs {
		if v.Kind() != '"' {
			o.faults.Add(problem.Invalid, o.pointer(name)+"/"+strconv.Itoa(i), "must be a string")
			ss = append(ss, "")
			continue
		}
		ss = append(ss, unquote(v))
	}
	return ss
}

// objects takes an array of objects; nil when it is absent. An element of another type is
// an empty one, as in strings.
func (o *object) objects(name string) []*object {
	vs := o.list(name)
	if vs == nil {
		return nil
	}
	list := &object{path: o.pointer(name), faults: o.faults}
	out := make([]*object, 0, len(vs))
	for i, v := range vs {
		if v.Kind() != '{' {
			place := list.pointer(strconv.Itoa(i))
			o.faults.Add(problem.Invalid, place, "must be an object")
			out = append(out, &object{path: place, faults: o.faults})
			continue
		}
		out = append(out, list.nested(strconv.Itoa(i), v))
	}
	return out
}

// env takes the member env, an object whose values are strings; nil when it is absent.
func (o *object) env() map[string]string {
	sub := o.object("env")
	if sub == nil {
		return nil
	}
	m := make(map[string]string, len(sub.members))
	for _, e := range sub.members {
		m[e.name] = sub.text(e.name)
	}
	return m
}

// unknown records every member that was not asked for. Call it last.
func (o *object) unknown() {
	for _, m := range o.members {
		if !m.taken {
			o.faults.Add(problem.Invalid, o.pointer(m.name), "unknown property")
		}
	}
}

// require records a fault when a member is absent.
func (o *object) require(names ...string) {
	for _, n := range names {
		if !o.has(n) {
			o.faults.Add(problem.Invalid, o.pointer(n), "is required")
		}
	}
}

func unquote(v jsontext.Value) string {
	b, _ := jsontext.AppendUnquote(nil, v) // it was parsed before: half a pair becomes U+FFFD
	return string(b)
}

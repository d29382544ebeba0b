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

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/problem"
)

// An object is a JSON object that a decoder reads member by member. A getter that finds a
// member of the wrong type records a fault and returns as if the member were absent. unknown
// records the members that no getter read. So one pass finds all faults.
type object struct {
	path    string
	base    int64 // offset in the body; 0 if it is not known
	faults  *problem.Violations
	members []member
	index   map[string]int // index of members by name, once there are many
	// shape records what is read instead: the getters describe their members in it, and
	// return as if these were absent. Nil: a body is read. See recorded.
	shape *openapi.Schema
}

// indexThreshold is the number of members from which an index is used. Without it an object of
// a megabyte could take a minute.
const indexThreshold = 16

// maxMembers is how many members an object may have that the service itself reads. Each costs about
// 100 bytes of memory, however short it is, and a body of 10 MB can have a million. An environment
// of a megabyte, the largest that there may be, has fewer with names and values of five bytes together.
const maxMembers = 100_000

type member struct {
	name  string
	value jsontext.Value
	at    int64 // offset of value
	taken bool
}

// Ways to read a body.
type strictness bool

const (
	// strictThroughout refuses a repeated name at any depth.
	strictThroughout strictness = true
	// strictEnvelope refuses a repeated name at the top only: what is below is for the worker.
	strictEnvelope strictness = false
)

// parse reads a body that is one JSON object. A body that is not JSON (400) and a JSON value
// that is not an object (422) are errors at once.
func parse(body []byte, how strictness, faults *problem.Violations) (*object, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, problem.Newf(problem.BadRequest, "the body is empty: it must be a JSON object")
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
		return nil, problem.Newf(problem.BadRequest, "the body is not JSON: there is something after its end, at byte %d", dec.InputOffset())
	}
	if !isObject { // it can have no other faults
		faults.Add(problem.Invalid, "", "the body must be a JSON object")
		return nil, faults.Err(nil)
	}
	return o, nil
}

// decoder reads src. An escape of half a surrogate pair is valid JSON, but no character. It is
// allowed in parts for the worker. Bytes that are not UTF-8 are not allowed; parse has checked
// that before a part of a body is read.
func decoder(src []byte, how strictness) *jsontext.Decoder {
	free := how == strictEnvelope && utf8.Valid(src)
	return jsontext.NewDecoder(bytes.NewBuffer(src), jsontext.AllowDuplicateNames(how == strictEnvelope), jsontext.AllowInvalidUTF8(free))
}

// read reads the members of the next object in src, which dec reads. Their values are parts of
// src.
func (o *object) read(dec *jsontext.Decoder, src []byte) error {
	if _, err := dec.ReadToken(); err != nil {
		return syntaxError(err)
	}
	for dec.PeekKind() != '}' {
		quoted, err := dec.ReadValue()
		if err != nil {
			return syntaxError(err)
		}
		if len(o.members) == maxMembers {
			return problem.Newf(problem.Invalid, "an object of the body has more than %d members", maxMembers)
		}
		name := unquote(quoted)
		if o.find(name) != nil {
			return malformed("duplicate object member name", o.pointer(name), o.base+dec.InputOffset()-int64(len(quoted)))
		}
		v, err := dec.ReadValue()
		if err != nil {
			return syntaxError(err)
		}
		end := dec.InputOffset()
		at := end - int64(len(v))
		o.add(member{name: name, value: src[at:end:end], at: at})
	}
	_, err := dec.ReadToken()
	if err != nil {
		return syntaxError(err)
	}
	return nil
}

// maxPointer bounds a JSON pointer in an error: in a body that is too deep it has ten thousand
// names. The offset in the error shows the place too.
const maxPointer = 200

func syntaxError(err error) error {
	var s *jsontext.SyntacticError
	if !errors.As(err, &s) {
		return problem.Newf(problem.BadRequest, "the body is not JSON: it ends too early")
	}
	return malformed(s.Err.Error(), string(s.JSONPointer), s.ByteOffset)
}

// malformed returns an error with a JSON pointer, which may be empty, and an offset in the
// body.
func malformed(what, pointer string, at int64) error {
	if pointer == "" {
		return problem.Newf(problem.BadRequest, "the body is not JSON: %s at byte %d", what, at)
	}
	if len(pointer) > maxPointer {
		pointer = strings.ToValidUTF8(pointer[:maxPointer], "") + "..."
	}
	return problem.Newf(problem.BadRequest, "the body is not JSON: %s at %s, byte %d", what, pointer, at)
}

func (o *object) add(m member) {
	o.members = append(o.members, m)
	switch n := len(o.members); {
	case n == indexThreshold:
		o.index = make(map[string]int, 2*indexThreshold)
		for i := range o.members {
			o.index[o.members[i].name] = i
		}
	case n > indexThreshold:
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

// escape escapes a name for a JSON pointer.
var escape = strings.NewReplacer("~", "~0", "/", "~1")

// pointer returns the JSON pointer of a member.
func (o *object) pointer(name string) string { return o.path + "/" + escape.Replace(name) }

// take returns the member's value if it is there and has one of the kinds. want names the kinds
// for the user.
func (o *object) take(name, want string, kinds string) jsontext.Value {
	if o.shape != nil {
		o.expect(name, want)
		return nil
	}
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
func (o *object) has(name string) bool { return o.shape != nil || o.find(name) != nil }

// isNull reports whether the member is null; if so, it counts as read.
func (o *object) isNull(name string) bool {
	if o.shape != nil {
		openapi.OrNull(o.member(name))
		return false
	}
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

func (o *object) boolean(name string) *bool {
	v := o.take(name, "true or false", "tf")
	if v == nil {
		return nil
	}
	b := v.Kind() == 't'
	return &b
}

// maxSafeInteger is the largest integer up to which every integer is a float64.
const maxSafeInteger = 1 << 53

// integer reads a number without a fraction, in any notation. A number that an int cannot hold
// counts as the nearest one that it can: the bounds of all fields are within.
func (o *object) integer(name string) *int {
	wide := o.wide(name)
	if wide == nil {
		return nil
	}
	n := int(max(min(*wide, math.MaxInt), math.MinInt))
	return &n
}

// wide is integer with 64 bits on every system. A larger number counts as maxSafeInteger.
func (o *object) wide(name string) *int64 {
	v := o.take(name, "an integer", "0")
	if v == nil {
		return nil
	}
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		n = max(min(n, maxSafeInteger), -maxSafeInteger)
		return &n
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if f != math.Trunc(f) || err != nil && !errors.Is(err, strconv.ErrRange) {
		o.faults.Add(problem.Invalid, o.pointer(name), "must be an integer")
		return nil
	}
	n := int64(max(min(f, maxSafeInteger), -maxSafeInteger))
	return &n
}

// number is integer for a field whose zero value means absent.
func (o *object) number(name string) int {
	if n := o.integer(name); n != nil {
		return *n
	}
	return 0
}

// object reads a nested object.
func (o *object) object(name string) *object {
	v := o.take(name, "an object", "{")
	if o.shape != nil {
		return &object{faults: o.faults, shape: o.member(name)}
	}
	if v == nil {
		return nil
	}
	return o.nested(name, v)
}

// nested reads a value that is known to be a valid object.
func (o *object) nested(name string, v jsontext.Value) *object {
	sub := &object{path: o.pointer(name), faults: o.faults}
	if err := sub.read(decoder(v, strictEnvelope), v); err != nil {
		o.faults.Add(problem.BadRequest, sub.path, "%s", problem.Of(err).Detail)
	}
	return sub
}

// checkNames returns an error when the member is an object with a repeated name. parse checks
// nested objects only in bodies that are strictThroughout.
func (o *object) checkNames(name string) error {
	m := o.find(name)
	if m == nil || m.value.Kind() != '{' {
		return nil
	}
	sub := &object{path: o.pointer(name), base: o.base + m.at}
	return sub.read(decoder(m.value, strictEnvelope), m.value)
}

// list returns the elements of an array; nil when it is absent.
func (o *object) list(name string) []jsontext.Value {
	v := o.take(name, "an array", "[")
	if v == nil {
		return nil
	}
	vs := []jsontext.Value{}
	dec := decoder(v, strictEnvelope)
	_, _ = dec.ReadToken() // it is known to be valid
	for dec.PeekKind() != ']' {
		e, err := dec.ReadValue()
		if err != nil {
			return vs
		}
		vs = append(vs, bytes.Clone(e))
	}
	return vs
}

// strings reads an array of strings; nil when it is absent. An element of another type becomes
// an empty one, so that the others keep their places.
func (o *object) strings(name string) []string {
	vs := o.list(name)
	if vs == nil {
		o.expectItems(name, "string")
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

// Limits of a list of which a user chooses, such as data centers. No budget counts what it has.
const (
	maxChoices = 100
	maxChoice  = 200 // bytes
)

// choices is strings for such a list.
func (o *object) choices(name string) []string {
	ss := o.strings(name)
	if len(ss) > maxChoices {
		o.faults.Add(problem.Invalid, o.pointer(name), "must have at most %d items", maxChoices)
		return nil
	}
	for i, s := range ss {
		if len(s) > maxChoice {
			o.faults.Add(problem.Invalid, o.pointer(name)+"/"+strconv.Itoa(i), "must have at most %d bytes", maxChoice)
			ss[i] = ""
		}
	}
	return ss
}

// objects reads an array of objects; nil when it is absent. An element of another type becomes
// nil, so that the others keep their places.
func (o *object) objects(name string) []*object {
	vs := o.list(name)
	if o.shape != nil {
		return []*object{{faults: o.faults, shape: o.expectItems(name, "object")}}
	}
	if vs == nil {
		return nil
	}
	list := &object{path: o.pointer(name), faults: o.faults}
	out := make([]*object, 0, len(vs))
	for i, v := range vs {
		if v.Kind() != '{' {
			o.faults.Add(problem.Invalid, list.pointer(strconv.Itoa(i)), "must be an object")
			out = append(out, nil)
			continue
		}
		out = append(out, list.nested(strconv.Itoa(i), v))
	}
	return out
}

// env reads the member env, an object whose values are strings; nil when it is absent.
func (o *object) env() map[string]string {
	sub := o.object("env")
	if sub == nil {
		return nil
	}
	if o.shape != nil {
		sub.shape.AdditionalProperties = openapi.Of("string")
	}
	m := make(map[string]string, len(sub.members))
	for _, e := range sub.members {
		m[e.name] = sub.text(e.name)
	}
	return m
}

// unknown records a fault for every member that was not read. Call it last.
func (o *object) unknown() {
	if o.shape != nil {
		o.shape.AdditionalProperties = false
	}
	for _, m := range o.members {
		if !m.taken {
			o.faults.Add(problem.Invalid, o.pointer(m.name), "unknown property")
		}
	}
}

// without returns the object as it was read, without the member.
func (o *object) without(name string) []byte {
	b := []byte{'{'}
	for _, m := range o.members {
		if m.name == name {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, m.name) // it was a valid name
		b = append(append(b, ':'), m.value...)
	}
	return append(b, '}')
}

// require records a fault when a member is absent.
func (o *object) require(names ...string) {
	if o.shape != nil {
		o.shape.Required = append(o.shape.Required, names...)
		return
	}
	for _, n := range names {
		if !o.has(n) {
			o.faults.Add(problem.Invalid, o.pointer(n), "is required")
		}
	}
}

func unquote(v jsontext.Value) string {
	if bytes.IndexByte(v, '\\') < 0 {
		return string(v[1 : len(v)-1])
	}
	b, _ := jsontext.AppendUnquote(nil, v) // it is valid; half a surrogate pair becomes U+FFFD
	return string(b)
}

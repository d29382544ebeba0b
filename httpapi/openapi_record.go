package httpapi

import (
	"strings"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/problem"
)

// recorded returns the schema of the bodies that a decoder reads: its members, their types,
// which are required, and whether there may be others. What services check is not in it.
func recorded(read func(*object)) *openapi.Schema {
	s := openapi.Of("object")
	read(&object{faults: &problem.Violations{}, shape: s})
	return s
}

// rules adds what the document says of a member beside its type: bounds, a default, a sentence. It is
// called after the member was read, and does nothing when a body is read.
func (o *object) rules(name string, add func(*openapi.Schema)) {
	if o.shape != nil {
		add(o.member(name))
	}
}

// member returns the schema of a member.
func (o *object) member(name string) *openapi.Schema {
	if o.shape.Properties == nil {
		o.shape.Properties = map[string]*openapi.Schema{}
	}
	if o.shape.Properties[name] == nil {
		o.shape.Properties[name] = &openapi.Schema{}
	}
	return o.shape.Properties[name]
}

// expect records the type of a member. want is the text of take: "a string".
func (o *object) expect(name, want string) {
	m := o.member(name)
	words := strings.Fields(want)
	kind := words[len(words)-1]
	if kind == "false" { // true or false
		kind = "boolean"
	}
	if len(m.Type) == 0 || m.Type[0] == "null" {
		m.Type = append(openapi.Types{kind}, m.Type...)
	}
}

// expectItems records the type of the elements of a member, and returns their schema. When a
// body is read, it does nothing.
func (o *object) expectItems(name, kind string) *openapi.Schema {
	if o.shape == nil {
		return nil
	}
	m := o.member(name)
	if m.Items == nil {
		m.Items = openapi.Of(kind)
	}
	return m.Items
}

package openapi

import (
	"reflect"
	"strings"
)

// A Builder makes schemas from Go types. Named structs become components. Fields are read as
// package encoding/json reads them: a pointer may be null, and a member with omitempty may be
// absent, but is then not null. Slices and maps must not be nil when they are written.
type Builder struct {
	// Components are the schemas of named structs that were asked for, by name.
	Components map[string]*Schema
	// Known are the schemas of types that say more than their kind, as those of closed sets.
	Known map[reflect.Type]*Schema
	// Name returns the name of the component of a struct. Empty: it is none, and stands
	// where it is used.
	Name func(reflect.Type) string
}

// For returns the schema of what a value of type T is written as.
func For[T any](b *Builder) *Schema { return b.schema(reflect.TypeFor[T]()) }

// Component names a schema, and returns a reference to it.
func (b *Builder) Component(name string, s *Schema) *Schema {
	b.Components[name] = s
	return Ref(name)
}

// Ref returns a reference to a component.
func Ref(name string) *Schema { return &Schema{Ref: "#/components/schemas/" + name} }

func (b *Builder) schema(t reflect.Type) *Schema {
	if s := b.Known[t]; s != nil {
		same := *s
		return &same
	}
	switch t.Kind() {
	case reflect.Pointer:
		return OrNull(b.schema(t.Elem()))
	case reflect.String:
		return Of("string")
	case reflect.Bool:
		return Of("boolean")
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return Of("integer")
	case reflect.Float64:
		return Of("number")
	case reflect.Slice:
		return List(b.schema(t.Elem()))
	case reflect.Map:
		return &Schema{Type: Types{"object"}, AdditionalProperties: b.schema(t.Elem())}
	case reflect.Struct:
		return b.object(t)
	}
	return &Schema{}
}

// object returns a reference to the component of a struct, or the schema of one without a
// name.
func (b *Builder) object(t reflect.Type) *Schema {
	name := b.Name(t)
	if name != "" && b.Components[name] != nil {
		return Ref(name)
	}
	s := &Schema{Type: Types{"object"}, Properties: map[string]*Schema{}}
	if name != "" {
		b.Components[name] = s // before its fields, which may have the same type
	}
	b.fields(s, t)
	if name != "" {
		return Ref(name)
	}
	return s
}

func (b *Builder) fields(s *Schema, t reflect.Type) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			b.fields(s, f.Type)
			continue
		}
		if name == "" || name == "-" {
			continue
		}
		ft := f.Type
		optional := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
		if optional && ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		if !optional {
			s.Required = append(s.Required, name)
		}
		s.Properties[name] = b.schema(ft)
	}
}

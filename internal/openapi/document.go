// Package openapi has the parts of an OpenAPI 3.1 document that this module writes, and makes
// schemas from the types that are written as JSON.
package openapi

import (
	"fmt"
	"slices"
	"strings"
)

// A Document is an OpenAPI document.
type Document struct {
	OpenAPI    string                           `json:"openapi"`
	Info       Info                             `json:"info"`
	Servers    []Server                         `json:"servers,omitempty"`
	Tags       []Tag                            `json:"tags,omitempty"`
	Paths      map[string]map[string]*Operation `json:"paths"` // by path and method in lower case
	Components Components                       `json:"components"`
}

// Info is about the whole document.
type Info struct {
	Title       string `json:"title"`
	Version     string `json:"version"`
	Description string `json:"description,omitempty"`
}

// A Server is where the paths are served.
type Server struct {
	URL string `json:"url"`
}

// A Tag is a group of operations.
type Tag struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// Components are the parts that others refer to by name.
type Components struct {
	Schemas         map[string]*Schema         `json:"schemas"`
	Responses       map[string]*Response       `json:"responses"`
	SecuritySchemes map[string]*SecurityScheme `json:"securitySchemes"`
}

// A SecurityScheme is a form of key.
type SecurityScheme struct {
	Type        string `json:"type"`
	Scheme      string `json:"scheme,omitempty"`
	Name        string `json:"name,omitempty"`
	In          string `json:"in,omitempty"`
	Description string `json:"description,omitempty"`
}

// An Operation is one method of one path.
type Operation struct {
	OperationID string                `json:"operationId"`
	Summary     string                `json:"summary"`
	Description string                `json:"description,omitempty"`
	Tags        []string              `json:"tags,omitempty"`
	Security    []map[string][]string `json:"security"` // empty: no key
	Parameters  []*Parameter          `json:"parameters,omitempty"`
	RequestBody *Body                 `json:"requestBody,omitempty"`
	Responses   map[string]*Response  `json:"responses"`
	Added       bool                  `json:"x-podyard,omitempty"`
	Scope       string                `json:"x-podyard-scope,omitempty"`
	NotOffered  bool                  `json:"x-podyard-not-offered,omitempty"`
}

// A Parameter is a part of the path, the query or the header.
type Parameter struct {
	Name        string  `json:"name"`
	In          string  `json:"in"`
	Required    bool    `json:"required,omitempty"`
	Description string  `json:"description,omitempty"`
	Schema      *Schema `json:"schema"`
	Style       string  `json:"style,omitempty"`
	Explode     *bool   `json:"explode,omitempty"`
	Added       bool    `json:"x-podyard,omitempty"`
}

// A Body is the body of a request.
type Body struct {
	Description string           `json:"description,omitempty"`
	Required    bool             `json:"required,omitempty"`
	Content     map[string]Media `json:"content"`
}

// A Media is a body in one media type.
type Media struct {
	Schema *Schema `json:"schema"`
}

// A Response is an answer, or a reference to one.
type Response struct {
	Ref         string             `json:"$ref,omitempty"`
	Description string             `json:"description,omitempty"`
	Headers     map[string]*Header `json:"headers,omitempty"`
	Content     map[string]Media   `json:"content,omitempty"`
}

// A Header is a header of a response.
type Header struct {
	Description string  `json:"description,omitempty"`
	Schema      *Schema `json:"schema"`
}

// A Schema is a JSON Schema. The zero value accepts everything.
type Schema struct {
	Ref                  string             `json:"$ref,omitempty"`
	Type                 Types              `json:"type,omitempty"`
	Description          string             `json:"description,omitempty"`
	Format               string             `json:"format,omitempty"`
	Pattern              string             `json:"pattern,omitempty"`
	Enum                 []string           `json:"enum,omitempty"`
	Not                  *Schema            `json:"not,omitempty"`
	Default              any                `json:"default,omitempty"`
	Deprecated           bool               `json:"deprecated,omitempty"`
	Minimum              *float64           `json:"minimum,omitempty"`
	Maximum              *float64           `json:"maximum,omitempty"`
	MinLength            int                `json:"minLength,omitempty"`
	MaxLength            int                `json:"maxLength,omitempty"`
	MinItems             int                `json:"minItems,omitempty"`
	MaxItems             int                `json:"maxItems,omitempty"`
	UniqueItems          bool               `json:"uniqueItems,omitempty"`
	MinProperties        int                `json:"minProperties,omitempty"`
	MaxProperties        int                `json:"maxProperties,omitempty"`
	Items                *Schema            `json:"items,omitempty"`
	Properties           map[string]*Schema `json:"properties,omitempty"`
	Required             []string           `json:"required,omitempty"`
	AdditionalProperties any                `json:"additionalProperties,omitempty"` // a bool or a *Schema
	AnyOf                []*Schema          `json:"anyOf,omitempty"`
	Added                bool               `json:"x-podyard,omitempty"`
	// ListOwned is the schema of the items that an operator gets who names an owner.
	ListOwned *Schema `json:"x-podyard-items,omitempty"`
}

// Types are the types that a value may have.
type Types []string

// Of returns the schema of a type: string, integer, number, boolean, object or array.
func Of(name string) *Schema { return &Schema{Type: Types{name}} }

// Open returns the schema of an object with any members. Generated clients take an object without this
// for one that has none.
func Open() *Schema { return &Schema{Type: Types{"object"}, AdditionalProperties: true} }

// List returns the schema of an array.
func List(items *Schema) *Schema { return &Schema{Type: Types{"array"}, Items: items} }

// ForGenerators makes the schema of a request one of which generators make types that can be filled in:
// an object whose members are not known takes any, and a default is said in words. openapi-typescript
// requires a member with a default, and lets nobody fill in an object without additionalProperties.
func (s *Schema) ForGenerators() *Schema {
	if s == nil {
		return nil
	}
	if slices.Contains(s.Type, "object") && s.Properties == nil && s.AdditionalProperties == nil {
		s.AdditionalProperties = true
	}
	if s.Default != nil {
		s.Description = strings.TrimSpace(fmt.Sprintf("%s Default: %v.", s.Description, s.Default))
		s.Default = nil
	}
	for _, member := range s.Properties {
		member.ForGenerators()
	}
	for _, one := range s.AnyOf {
		one.ForGenerators()
	}
	s.Items.ForGenerators()
	if values, ok := s.AdditionalProperties.(*Schema); ok {
		values.ForGenerators()
	}
	return s
}

// OrNull returns s, or null.
func OrNull(s *Schema) *Schema {
	if s.Ref != "" {
		return &Schema{AnyOf: []*Schema{s, Of("null")}}
	}
	if !slices.Contains(s.Type, "null") {
		s.Type = append(s.Type, "null")
	}
	return s
}

// At returns the schema of a member below s. The path has the names of members, and "*" for
// the elements of an array or the values of a map, with slashes between them. It panics if there is no such member,
// which is a mistake of the program.
func (s *Schema) At(path string) *Schema {
	for name := range strings.SplitSeq(path, "/") {
		next := s.Properties[name]
		if name == "*" {
			if next = s.Items; next == nil {
				next, _ = s.AdditionalProperties.(*Schema)
			}
		}
		if next == nil {
			panic("openapi: no member " + path)
		}
		s = next
	}
	return s
}

// Between sets the bounds of a number.
func (s *Schema) Between(lo, hi int) *Schema {
	s.Minimum, s.Maximum = new(float64(lo)), new(float64(hi))
	return s
}

// AtLeast sets the lower bound of a number.
func (s *Schema) AtLeast(lo float64) *Schema {
	s.Minimum = &lo
	return s
}

// OneOf sets the values of a string.
func OneOf[S ~string](s *Schema, values ...S) *Schema {
	s.Enum = nil
	for _, v := range values {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}

// NotEmpty requires a character, an element or a member.
func (s *Schema) NotEmpty() *Schema {
	switch s.Type[0] {
	case "array":
		s.MinItems = 1
	case "object":
		s.MinProperties = 1
	default:
		s.MinLength = 1
	}
	return s
}

// Defaults sets the default.
func (s *Schema) Defaults(v any) *Schema {
	s.Default = v
	return s
}

// Says sets the description.
func (s *Schema) Says(text string) *Schema {
	s.Description = text
	return s
}

// MarshalJSON writes one type as a string, and several as an array.
func (t Types) MarshalJSON() ([]byte, error) {
	if len(t) == 1 {
		return []byte(`"` + t[0] + `"`), nil
	}
	return []byte(`["` + strings.Join(t, `","`) + `"]`), nil
}

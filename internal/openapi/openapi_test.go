package openapi_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/openapi"
)

type base struct {
	ID string `json:"id"`
}

type thing struct {
	base
	Size   *int           `json:"size"`
	Note   *string        `json:"note,omitempty"`
	Next   *thing         `json:"next"`
	Tags   []string       `json:"tags"`
	By     map[string]int `json:"by"`
	Hidden bool           `json:"-"`
	Raw    any            `json:"raw,omitempty"`
}

func TestSchemaOfATypeIsWhatJSONMakesOfIt(t *testing.T) {
	b := &openapi.Builder{Components: map[string]*openapi.Schema{}, Name: func(t reflect.Type) string {
		if t.Name() == "thing" {
			return "Thing"
		}
		return ""
	}}
	if ref := openapi.For[thing](b); ref.Ref != "#/components/schemas/Thing" {
		t.Errorf("a struct with a name is %+v, want a reference", ref)
	}
	got, err := json.Marshal(b.Components["Thing"])
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"type":"object","properties":{` +
		`"by":{"type":"object","additionalProperties":{"type":"integer"}},"id":{"type":"string"},` +
		`"next":{"anyOf":[{"$ref":"#/components/schemas/Thing"},{"type":"null"}]},"note":{"type":"string"},"raw":{},` +
		`"size":{"type":["integer","null"]},"tags":{"type":"array","items":{"type":"string"}}},` +
		`"required":["id","size","next","tags","by"]}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
}

func TestAMemberThatIsNotThereIsAMistakeOfTheProgram(t *testing.T) {
	defer func() {
		if p := recover(); p != "openapi: no member a/b" {
			t.Errorf("At panicked with %v", p)
		}
	}()
	s := openapi.Of("object")
	s.Properties = map[string]*openapi.Schema{"a": openapi.Of("string")}
	s.At("a/b")
}

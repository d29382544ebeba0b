package unwrap_test

import (
	"testing"

	"github.com/podyard/podyard/internal/unwrap"
)

type (
	animal  interface{ Legs() int }
	barker  interface{ Bark() string }
	dog     struct{}
	wrapped struct{ animal }
)

func (dog) Legs() int            { return 4 }
func (dog) Bark() string         { return "woof" }
func (w wrapped) Unwrap() animal { return w.animal }

func TestAsFindsWhatAWrapperAtAnyDepthWraps(t *testing.T) {
	for _, a := range []animal{dog{}, wrapped{dog{}}, wrapped{wrapped{dog{}}}} {
		if b, ok := unwrap.As[barker](a); !ok || b.Bark() != "woof" {
			t.Errorf("As of %#v = %v, %t, want the dog", a, b, ok)
		}
	}
	for _, a := range []animal{nil, wrapped{nil}, wrapped{wrapped{nil}}} {
		if b, ok := unwrap.As[barker](a); ok || b != nil {
			t.Errorf("As of %#v = %v, %t, want none", a, b, ok)
		}
	}
}

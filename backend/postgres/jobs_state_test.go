package postgres

import (
	"reflect"
	"testing"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// A field that a later version adds to the state must be stored, too.
func TestEveryFieldOfAStateIsStored(t *testing.T) {
	var s queue.State
	fillFields(t, reflect.ValueOf(&s).Elem())
	got, err := decodeState(encodeState(&s), int64(s.Seq))
	if err != nil || got != s {
		t.Errorf("%+v comes back as %+v, %v", s, got, err)
	}
}

func fillFields(t *testing.T, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case f.Type() == reflect.TypeFor[time.Duration]():
			f.SetInt(int64(i+1) * int64(time.Millisecond))
		case f.Kind() == reflect.Struct:
			fillFields(t, f)
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.Kind() == reflect.String:
			f.SetString("text")
		case f.CanUint():
			f.SetUint(uint64(i + 1))
		case f.CanInt():
			f.SetInt(int64(i + 1))
		case f.CanFloat():
			f.SetFloat(1.5)
		default:
			t.Fatalf("the field %s has the type %v", v.Type().Field(i).Name, f.Type())
		}
	}
}

package suite

import (
	"reflect"
	"testing"
	"time"
)

// Fill sets every member of a struct, and of the structs in it, to a value of its own that is not
// the zero value. v points to it. It is for tests that nothing is lost, also of members that later
// versions add.
func Fill(t testing.TB, v any) {
	t.Helper()
	n := 0
	fill(t, reflect.ValueOf(v).Elem(), &n)
}

func fill(t testing.TB, v reflect.Value, n *int) {
	t.Helper()
	for i := range v.NumField() {
		*n++
		switch f := v.Field(i); {
		case f.Type() == reflect.TypeFor[time.Duration]():
			f.SetInt(int64(*n) * int64(time.Millisecond))
		case f.Kind() == reflect.Struct:
			fill(t, f, n)
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.Kind() == reflect.String:
			f.SetString("text" + string(rune('a'+*n)))
		case f.CanUint():
			f.SetUint(uint64(*n))
		case f.CanInt():
			f.SetInt(int64(*n))
		case f.CanFloat():
			f.SetFloat(float64(*n) + 0.5)
		default:
			t.Fatalf("the field %s has the type %v", v.Type().Field(i).Name, f.Type())
		}
	}
}

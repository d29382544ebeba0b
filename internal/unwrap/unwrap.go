// Package unwrap finds optional interfaces of values that may be wrapped.
package unwrap

// As returns v as a T, or the first value wrapped by v that is a T. A wrapper has a method
// Unwrap() W.
func As[T, W any](v W) (T, bool) {
	for any(v) != nil {
		if t, ok := any(v).(T); ok {
			return t, true
		}
		u, ok := any(v).(interface{ Unwrap() W })
		if !ok {
			break
		}
		v = u.Unwrap()
	}
	var zero T
	return zero, false
}

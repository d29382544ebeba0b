package serverless

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// JSON makes a Worker from a function over Go values. It decodes the input of a job into an
// In, and encodes the result of f as the output.
//
// The input is decoded by encoding/json: unknown members are ignored, and missing members
// leave the zero value. An input that does not fit fails the job with an error that names the
// field, and f is not called; the job is not retried. An error of f fails the job, as an error of a Worker does; the
// Output of a *Failure must be JSON. A nil Out becomes the output null.
//
// Use HandleTask or a JSONWorker for a function that streams, reports progress, or refuses unknown members.
func JSON[In, Out any](f func(ctx context.Context, in In) (Out, error)) Worker {
	return JSONWorker[In, Out]{Func: func(ctx context.Context, t *JSONTask[In]) (Out, error) { return f(ctx, t.Input) }}
}

// A JSONWorker is a Worker over Go values, like that of JSON, whose function gets the whole
// task.
type JSONWorker[In, Out any] struct {
	Func func(ctx context.Context, t *JSONTask[In]) (Out, error)
	// Strict fails a job whose input has members that In does not have.
	Strict bool
}

// A JSONTask is a Task with a decoded input.
type JSONTask[In any] struct {
	ID      JobID
	Input   In
	Extra   []byte // as in Task
	Attempt int    // as in Task

	task *Task
}

// Emit is Task.Emit with v encoded as JSON.
func (t *JSONTask[In]) Emit(ctx context.Context, v any) error {
	b, err := encode("chunk", v)
	if err != nil {
		return err
	}
	return t.task.Emit(ctx, b)
}

// Progress is Task.Progress with v encoded as JSON.
func (t *JSONTask[In]) Progress(ctx context.Context, v any) error {
	b, err := encode("progress", v)
	if err != nil {
		return err
	}
	return t.task.Progress(ctx, b)
}

// Work implements Worker.
func (w JSONWorker[In, Out]) Work(ctx context.Context, t *Task) ([]byte, error) {
	typed := &JSONTask[In]{ID: t.ID, Extra: t.Extra, Attempt: t.Attempt, task: t}
	if err := decode(t.Input, &typed.Input, w.Strict); err != nil {
		err = inputError(t.Input, err, func(b []byte) error { return decode(b, new(In), w.Strict) })
		return nil, &Failure{Text: err.Error(), NoRetry: true} // another attempt has the same input
	}
	out, err := w.Func(ctx, typed)
	if v := (*Verdict)(nil); err != nil && (!errors.As(err, &v) || !v.holdsOnly()) {
		return nil, err
	}
	b, fault := encode("output", out)
	return b, cmp.Or(fault, err)
}

func decode(b []byte, v any, strict bool) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if strict {
		d.DisallowUnknownFields()
	}
	return d.Decode(v)
}

// encode encodes v. It does not escape < and &, because the output is not HTML.
func encode(what string, v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("%s: %s", what, plain(err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// inputError turns a decoding error into a text for the user who sent input. again decodes
// into a new value; it finds the field where the error of a custom decoder does not name it.
func inputError(input []byte, err error, again func([]byte) error) error {
	if t := (*json.UnmarshalTypeError)(nil); errors.As(err, &t) {
		field := t.Field
		if field == "" { // errors in a map have no field
			field = wrongMember(input, again)
		}
		return fmt.Errorf("%s must be %s, not %s", inputField(field), wanted(t.Type), t.Value)
	}
	if name := wrongMember(input, again); !strings.Contains(err.Error(), name) {
		return fmt.Errorf("%s: %s", inputField(name), plain(err))
	}
	return fmt.Errorf("input: %s", plain(err))
}

func inputField(name string) string {
	if name == "" {
		return "input"
	}
	return fmt.Sprintf("input: %q", name)
}

// wrongMember returns the first member of an object that cannot be decoded alone. It returns
// "" if input is not an object, or if even the empty object cannot be decoded.
func wrongMember(input []byte, decode func([]byte) error) string {
	d := json.NewDecoder(bytes.NewReader(input))
	if t, err := d.Token(); err != nil || t != json.Delim('{') || decode([]byte("{}")) != nil {
		return ""
	}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return ""
		}
		key, _ := name.(string)
		one, err := json.Marshal(map[string]json.RawMessage{key: value})
		if err != nil || decode(one) != nil {
			return key
		}
	}
	return ""
}

// plain returns the text of an error of encoding/json without its package prefix.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "json: ") }

// wanted returns the JSON name of a Go type.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number" + size(t)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number from 0" + size(t)
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return "of another type"
}

// size returns the bit size of an integer type as text, "" for 64 bits.
func size(t reflect.Type) string {
	if t.Bits() == 64 {
		return ""
	}
	return fmt.Sprintf(" of %d bits", t.Bits())
}

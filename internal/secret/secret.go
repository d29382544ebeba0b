// Package secret has a string that no log and no error shows.
package secret

import (
	"fmt"
	"io"
	"log/slog"
)

// A Text prints as [redacted]. Convert it to a string where it is used.
type Text string

// String hides t.
func (Text) String() string { return redacted }

// Format hides t whatever the verb: with a wrong one fmt would print the value itself.
func (Text) Format(f fmt.State, _ rune) { io.WriteString(f, redacted) }

// LogValue hides t.
func (Text) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides t: a secret is stored by converting it first.
func (Text) MarshalText() ([]byte, error) { return []byte(redacted), nil }

const redacted = "[redacted]"

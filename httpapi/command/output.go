package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/podyard/podyard/internal/terminal"
)

// put writes to somebody who may have gone: there is nobody else to say that to.
func put(w io.Writer, format string, a ...any) { _, _ = fmt.Fprintf(w, format, a...) }

// A column is one of a table: its title, and what it shows of a record.
type column[T any] struct {
	title string
	text  func(*T) string
}

// list shows records as a table, or as a JSON array.
func list[T any](c *Call, records []T, columns ...column[T]) error {
	if c.asJSON() {
		if records == nil {
			records = []T{}
		}
		return writeJSON(c.Stdout, records)
	}
	return table(c.Stdout, records, columns)
}

// listDone shows the records with which something was done before it failed, if it did. Without any
// there is no table.
func listDone[T any](c *Call, done []T, failed error, columns ...column[T]) error {
	if failed != nil && len(done) == 0 && !c.asJSON() {
		return failed
	}
	return errors.Join(list(c, done, columns...), failed)
}

func table[T any](to io.Writer, records []T, columns []column[T]) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	var line []string
	for _, col := range columns {
		line = append(line, col.title)
	}
	put(w, "%s\n", strings.Join(line, "\t"))
	for i := range records {
		line = line[:0]
		for _, col := range columns {
			line = append(line, orDash(clean(col.text(&records[i]))))
		}
		put(w, "%s\n", strings.Join(line, "\t"))
	}
	return w.Flush()
}

// A field is one of a record that is shown alone.
type field struct{ name, text string }

// show shows one record line by line, or as a JSON object. Empty fields are left out.
func show(c *Call, record any, fields ...field) error {
	if c.asJSON() {
		return writeJSON(c.Stdout, record)
	}
	w := tabwriter.NewWriter(c.Stdout, 0, 0, 2, ' ', 0)
	for _, f := range fields {
		if f.text != "" {
			put(w, "%s\t%s\n", f.name, clean(f.text))
		}
	}
	return w.Flush()
}

// then shows what a call has returned, unless it failed.
func then[T any](c *Call, record T, failed error, show func(*Call, T) error) error {
	if failed != nil {
		return failed
	}
	return show(c, record)
}

// say shows a line, or a record as JSON.
func (c *Call) say(record any, format string, a ...any) error {
	if c.asJSON() {
		return writeJSON(c.Stdout, record)
	}
	_, err := fmt.Fprintf(c.Stdout, format+"\n", a...)
	return err
}

func (c *Call) asJSON() bool { return c.server != nil && c.server.form == "json" }

func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(terminal.EscapeJSON(b.Bytes()))
	return err
}

// clean replaces what could move the cursor of a terminal: names and errors come from others.
func clean(s string) string { return terminal.Clean(s) }

// cleanLines is clean for a text of several lines.
func cleanLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = clean(lines[i])
	}
	return strings.Join(lines, "\n")
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// at is an instant in a table.
func at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

func atOrNever(t *time.Time) string {
	if t == nil {
		return ""
	}
	return at(*t)
}

func number[T ~int | ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

// count is a number of things: "1 job", "2 jobs".
func count[T ~int | ~int64](n T, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// short is a text that fits into a table.
func short(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// isTerminal reports whether somebody watches.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	fi, err := f.Stat()
	return err == nil && fi.Mode()&os.ModeCharDevice != 0
}

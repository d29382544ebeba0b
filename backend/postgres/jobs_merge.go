package postgres

import (
	"encoding/binary"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// A statement is one of a batch.
type statement struct {
	sql  string
	args []any
}

// merged are statements that change different rows and can be made as one: each statement costs the
// database about as much as the changes of one job.
type merged []statement

// addIf adds a statement if its first column has rows.
func addIf[T any](list *merged, column []T, sql string, args ...any) {
	if len(column) > 0 {
		*list = append(*list, statement{sql, args})
	}
}

// queue adds the statements to a batch as one, and returns it. The last one may be a query.
func (list merged) queue(b *pgx.Batch, texts *mergedTexts) *pgx.QueuedQuery {
	if len(list) == 0 {
		return nil
	}
	list = texts.oneRow(list)
	var args []any
	for _, s := range list {
		args = append(args, s.args...)
	}
	return b.Queue(texts.of(list), args...)
}

// mergedTexts are the texts of merged statements. There are as many as combinations that occur.
type mergedTexts struct {
	mu    sync.Mutex
	text  map[string]string // by the numbers of the statements
	ids   map[string]uint16
	forms map[string]*rowForm
}

// A rowForm is a statement for a single row. The parameters of its columns are no arrays.
type rowForm struct {
	sql     string
	columns []int // numbers of parameters, from 0
}

// unnested is where a statement has its rows from: its columns as arrays.
var unnested = regexp.MustCompile(`unnest\(((?:\$\d+::\w+\[\][,\s]*)+)\)( WITH ORDINALITY)?`)

var columnParam = regexp.MustCompile(`\$(\d+)::`)

func newRowForm(sql string) *rowForm {
	f := &rowForm{}
	f.sql = unnested.ReplaceAllStringFunc(sql, func(rows string) string {
		m := unnested.FindStringSubmatch(rows)
		for _, p := range columnParam.FindAllStringSubmatch(m[1], -1) {
			n, _ := strconv.Atoi(p[1]) // digits only
			f.columns = append(f.columns, n-1)
		}
		row := strings.ReplaceAll(m[1], "[]", "")
		if m[2] != "" {
			row += ", 1::int8"
		}
		return "(SELECT " + row + ")"
	})
	return f
}

// oneRow returns statements for single rows if each has one. To read a row from arrays costs the
// database about as much as to change it.
func (t *mergedTexts) oneRow(list merged) merged {
	one := make(merged, len(list))
	for i, s := range list {
		f := t.form(s.sql)
		one[i] = statement{f.sql, slices.Clone(s.args)}
		for _, n := range f.columns {
			v, ok := only(s.args[n])
			if !ok {
				return list
			}
			one[i].args[n] = v
		}
	}
	return one
}

func (t *mergedTexts) form(sql string) *rowForm {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.forms[sql]
	if f == nil {
		if t.forms == nil {
			t.forms = map[string]*rowForm{}
		}
		f = newRowForm(sql)
		t.forms[sql] = f
	}
	return f
}

// only returns the element of an array that has one.
func only(column any) (v any, ok bool) {
	switch list := column.(type) {
	case [][]byte:
		return first(list)
	case []int64:
		return first(list)
	case []int16:
		return first(list)
	case []bool:
		return first(list)
	case []pgtype.TID:
		return first(list)
	}
	return nil, false
}

func first[T any](list []T) (v any, ok bool) {
	if len(list) != 1 {
		return nil, false
	}
	return list[0], true
}

func (t *mergedTexts) of(list merged) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text == nil {
		t.text, t.ids = map[string]string{}, map[string]uint16{}
	}
	var key [32]byte
	k := key[:0]
	for _, s := range list {
		id, ok := t.ids[s.sql]
		if !ok {
			id = uint16(len(t.ids))
			t.ids[s.sql] = id
		}
		k = binary.BigEndian.AppendUint16(k, id)
	}
	text, ok := t.text[string(k)]
	if !ok {
		text = list.text()
		t.text[string(k)] = text
	}
	return text
}

// text makes all statements but the last one expressions of WITH, with parameters after those of the
// statements before.
func (list merged) text() string {
	var b strings.Builder
	params := 0
	for i, s := range list {
		switch {
		case i == len(list)-1 && i > 0:
			b.WriteString(" ")
		case i == 0 && len(list) > 1:
			b.WriteString("WITH s0 AS (")
		case i > 0:
			b.WriteString(", s" + strconv.Itoa(i) + " AS (")
		}
		shiftParams(&b, s.sql, params)
		params += len(s.args)
		if i < len(list)-1 {
			b.WriteString(")")
		}
	}
	return b.String()
}

// shiftParams writes a statement with higher numbers of parameters.
func shiftParams(b *strings.Builder, sql string, by int) {
	parts := strings.Split(sql, "$")
	b.WriteString(parts[0])
	for _, part := range parts[1:] {
		digits := len(part) - len(strings.TrimLeft(part, "0123456789"))
		n, _ := strconv.Atoi(part[:digits]) // digits only
		b.WriteString("$" + strconv.Itoa(n+by) + part[digits:])
	}
}

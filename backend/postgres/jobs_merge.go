package postgres

import (
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
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
	var args []any
	for _, s := range list {
		args = append(args, s.args...)
	}
	return b.Queue(texts.of(list), args...)
}

// mergedTexts are the texts of merged statements. There are as many as combinations that occur.
type mergedTexts struct {
	mu   sync.Mutex
	text map[string]string
}

func (t *mergedTexts) of(list merged) string {
	var key strings.Builder
	for _, s := range list {
		key.WriteString(s.sql)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	text, ok := t.text[key.String()]
	if !ok {
		if t.text == nil {
			t.text = map[string]string{}
		}
		text = list.text()
		t.text[key.String()] = text
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

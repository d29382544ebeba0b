package httpapi

import (
	"encoding/json"
	"net/http"

	"github.com/podyard/podyard/internal/openapi"
)

func cursorParam() *openapi.Parameter {
	return inQuery("cursor", openapi.Of("string").NotEmpty(), "Where the page begins: from the answer before.")
}

// withCursor adds the cursor of the next page to the object of a list.
func withCursor(page *openapi.Schema) *openapi.Schema {
	page.Properties["cursor"] = openapi.OrNull(openapi.Of("string"))
	page.Required = append(page.Required, "cursor")
	return page
}

// withPagination adds what the body of a paged list says of the next page.
func withPagination(page *openapi.Schema) *openapi.Schema {
	page.Properties["pagination"] = fields(map[string]*openapi.Schema{
		"nextCursor": openapi.OrNull(openapi.Of("string")), "hasNextPage": openapi.Of("boolean"),
	}, "nextCursor", "hasNextPage")
	page.Required = append(page.Required, "pagination")
	return page
}

func linkHeader() *openapi.Header {
	return &openapi.Header{Description: `The next page: <...>; rel="next". Absent at the end.`, Schema: openapi.Of("string")}
}

// A listWriter writes an object with a list as it is made, so that it need not be in memory as
// a whole (docs/decisions.md 36).
type listWriter struct {
	c     *call
	b     []byte
	items int
	owned bool  // the present item is in an object with its owner
	begun bool  // something was written
	gone  bool  // the client
	err   error // an item that could not be encoded
}

// list begins the answer {"name":[...]}.
func (c *call) list(name string) *listWriter {
	return &listWriter{c: c, b: append(append([]byte(`{"`), name...), `":[`...)}
}

// next begins an item. If an operator named an owner, the item names the one of its record.
func (l *listWriter) next(owner string) {
	if l.items++; l.items > 1 {
		l.b = append(l.b, ',')
	}
	if l.owned = l.c.named; l.owned {
		l.b = append(l.b, `{"owner":`...)
		l.append(owner)
		l.b = append(l.b, `,"item":`...)
	}
}

// append appends a value as JSON. An error is for stopped.
func (l *listWriter) append(v any) {
	b, err := json.Marshal(v)
	l.b = append(l.b, b...)
	if l.err == nil {
		l.err = err
	}
}

// add appends the value of the present item. It returns false when the list cannot go on: the
// handler then returns stopped.
func (l *listWriter) add(value func(b []byte) []byte) bool {
	if l.b = value(l.b); l.owned {
		l.b = append(l.b, '}')
	}
	if l.err != nil {
		return false
	}
	if len(l.b) >= largeAnswer && l.c.cut == nil { // the header of a page is written after its last record is known
		l.flush()
	}
	return !l.gone
}

// addJSON is add for a value as JSON.
func (l *listWriter) addJSON(v any) bool {
	return l.add(func([]byte) []byte {
		l.append(v)
		return l.b
	})
}

// stopped is the result of a handler after add has returned false. A list with an item that cannot
// be encoded fails; a client that is gone needs no answer.
func (l *listWriter) stopped() error {
	if l.err != nil {
		return l.failed(l.err)
	}
	return nil
}

func (l *listWriter) flush() {
	if !l.begun {
		l.begun = true
		setJSON(l.c.w.Header())
		l.c.w.WriteHeader(http.StatusOK)
	}
	if !l.gone {
		_, err := l.c.w.Write(l.b)
		l.gone = err != nil
	}
	if l.b = l.b[:0]; cap(l.b) > 4*largeAnswer {
		l.b = nil // of one large item
	}
}

// failed returns an error if nothing was written yet. Otherwise it breaks the connection, so
// that the client does not take a part for the whole.
func (l *listWriter) failed(err error) error {
	if !l.begun {
		return err
	}
	l.c.log.Error("a list ended early", "path", l.c.r.URL.Path, "err", err)
	panic(http.ErrAbortHandler)
}

// end ends the list. more are members after it, each with a comma before it.
func (l *listWriter) end(more []byte) {
	l.b = append(append(append(l.b, ']'), more...), '}')
	if !l.begun {
		writeBody(l.c.w, http.StatusOK, "application/json", l.b)
		return
	}
	l.flush()
}

// endWith ends the list with the members of an object, which is not empty.
func (l *listWriter) endWith(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return l.failed(err)
	}
	b[0] = ','
	l.end(b[:len(b)-1])
	return nil
}

// writeList answers {"name":[...]} with the bodies of records, and with their owners if an
// operator named one. A page ends early when its records are large; a list that is asked for as a
// whole is written as it is made.
func writeList[T, B any](c *call, name string, list []T, owner func(T) string, body func(T) B) error {
	l := c.list(name)
	for i, v := range list {
		if l.next(owner(v)); !l.addJSON(body(v)) {
			return l.stopped()
		}
		if c.cut != nil && len(l.b) >= pageBytes && i+1 < len(list) {
			c.cut(i)
			break
		}
	}
	if c.op.pages == pagesInBody {
		return l.endWith(struct {
			Pagination pagination `json:"pagination"`
		}{c.pagination()})
	}
	l.end(nil)
	return nil
}

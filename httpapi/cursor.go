package httpapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/podyard/podyard/problem"
)

// A cursor says where the next page of a list begins (docs/decisions.md 36). It is bound to
// the user, the path and the filters of the request: with others, it would leave out records
// or show them twice. It holds no secret, and a forged one shows nothing that its user may not
// see.

// bindingSize is how many bytes of the digest of its request a cursor has.
const bindingSize = 12

var errCursor = problem.New(problem.Invalid, "cursor must be one that an answer to the same request has returned")

// cursor returns the cursor of a position in the answer to a request with these filters.
func (c *call) cursor(position []byte, filters ...string) string {
	return base64.RawURLEncoding.EncodeToString(append(c.binding(filters), position...))
}

// position is the inverse of cursor.
func (c *call) position(cursor string, filters ...string) ([]byte, error) {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(b) < bindingSize || string(b[:bindingSize]) != string(c.binding(filters)) {
		return nil, errCursor
	}
	return b[bindingSize:], nil
}

// binding returns a digest of what a cursor is bound to.
func (c *call) binding(filters []string) []byte {
	h := sha256.New()
	for _, s := range append([]string{c.id.User, c.op.Name, c.r.URL.Path}, filters...) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	return h.Sum(nil)[:bindingSize:bindingSize]
}

// queryFilters returns the parameters of the query without those that choose the page.
func (c *call) queryFilters() string {
	if c.r.URL.RawQuery == "" {
		return ""
	}
	filters := c.r.URL.Query()
	filters.Del("limit")
	filters.Del("cursor")
	return filters.Encode()
}

// seqCursor is cursor for jobs, whose position is a Seq; nil for 0.
func (c *call) seqCursor(seq uint64, filters ...string) *string {
	if seq == 0 {
		return nil
	}
	s := c.cursor(binary.BigEndian.AppendUint64(nil, seq), filters...)
	return &s
}

func (c *call) seqPosition(cursor string, filters ...string) (uint64, error) {
	b, err := c.position(cursor, filters...)
	if err != nil || len(b) != 8 {
		return 0, errCursor
	}
	return binary.BigEndian.Uint64(b), nil
}

// A page of a list of the control API has at most maxListPage records, and ends with the record with
// which it has pageBytes.
const (
	maxListPage = 1000
	pageBytes   = 1 << 20
)

// A place is where a record is in a list: lists are by creation and then id.
type place struct {
	created time.Time
	id      string
}

func (p place) compare(q place) int {
	return cmp.Or(p.created.Compare(q.created), cmp.Compare(p.id, q.id))
}

// page returns the part of a list that the parameters limit and cursor select, and links to
// the next one. Without them it is the whole list (docs/decisions.md 36). list is sorted by
// what at returns.
func page[T any](c *call, list []T, at func(T) place) ([]T, error) {
	limit, err := c.queryInt("limit", 0, 1, maxListPage)
	if err != nil {
		return nil, err
	}
	cursor, err := c.queryText("cursor")
	if err != nil {
		return nil, err
	}
	filters := []string{c.owner, c.queryFilters()}
	if cursor != "" {
		last, err := c.place(cursor, filters)
		if err != nil {
			return nil, err
		}
		// The record may have been deleted since: its place stays where it was.
		i, found := slices.BinarySearchFunc(list, last, func(v T, p place) int { return at(v).compare(p) })
		if found {
			i++
		}
		list = list[i:]
	}
	if limit == 0 {
		return list, nil
	}
	c.cut = func(i int) {
		c.next = c.cursor(at(list[i]).encode(), filters...)
		c.nextLink(c.next)
	}
	if len(list) > limit {
		c.cut(limit - 1)
		return list[:limit], nil
	}
	return list, nil
}

// encode returns the time, which may be the zero time, and the id.
func (p place) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.created.Unix()))
	return append(binary.BigEndian.AppendUint32(b, uint32(p.created.Nanosecond())), p.id...)
}

// place is the inverse of the cursor that page makes.
func (c *call) place(cursor string, filters []string) (place, error) {
	b, err := c.position(cursor, filters...)
	if err != nil || len(b) < 12 {
		return place{}, errCursor
	}
	return place{time.Unix(int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint32(b[8:]))), string(b[12:])}, nil
}

// pagination is what the body of a paged list says of the next page. The header Link has the same.
type pagination struct {
	NextCursor  *string `json:"nextCursor"`
	HasNextPage bool    `json:"hasNextPage"`
}

func (c *call) pagination() pagination { return pagination{orNull(c.next), c.next != ""} }

// nextLink sets the header Link to the next page: the same request with this cursor.
func (c *call) nextLink(cursor string) {
	q := c.r.URL.Query()
	q.Set("cursor", cursor)
	// Without a path: the client may see another one, because handlers are mounted under prefixes.
	c.w.Header().Set("Link", "<?"+strings.ReplaceAll(q.Encode(), ">", "%3E")+`>; rel="next"`)
}

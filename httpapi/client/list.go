package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// pageSize is how many records a page has.
const pageSize = 500

// A record has an owner, which operators see.
type record[T any] interface {
	*T
	own(owner string)
}

// pages iterates over a list, page after page if the server has pages. An error ends it.
func pages[T any, P record[T]](ctx context.Context, c *Client, path, member string, query url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if query == nil {
			query = url.Values{}
		}
		if c.additions {
			query.Set("limit", strconv.Itoa(pageSize))
		}
		if c.owner != "" {
			query.Set("owner", c.owner)
		}
		r := to(c.control, http.MethodGet, path, query)
		for r != nil {
			list, next, err := page[T, P](ctx, c, r, member)
			for _, v := range list {
				if !yield(v, nil) {
					return
				}
			}
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			r = next
		}
	}
}

// page reads one page, and returns the request for the next one, or nil.
func page[T any, P record[T]](ctx context.Context, c *Client, r *request, member string) (list []T, next *request, err error) {
	var body map[string]json.RawMessage
	h, err := c.do(ctx, r, &body)
	if err != nil {
		return nil, nil, err
	}
	list, err = records[T, P](c, body[member])
	if err != nil {
		return nil, nil, r.failed(err)
	}
	u, err := nextPage(r.url, h)
	if err != nil || u == nil {
		return list, nil, r.failed(err)
	}
	same := *r
	same.url = u
	return list, &same, nil
}

// records decodes a list. One that an operator asked for by owner has the owners.
func records[T any, P record[T]](c *Client, raw json.RawMessage) (list []T, err error) {
	if c.owner == "" || len(raw) == 0 {
		if len(raw) > 0 {
			err = json.Unmarshal(raw, &list)
		}
		return list, err
	}
	var owned []struct {
		Owner string
		Item  T
	}
	err = json.Unmarshal(raw, &owned)
	for i := range owned {
		P(&owned[i].Item).own(owned[i].Owner)
		list = append(list, owned[i].Item)
	}
	return list, err
}

var errForeignPage = errors.New("the next page is on another host")

// nextPage returns the address of the next page in the header Link (docs/decisions.md 36), or
// nil. It is on the same host, because it gets the key.
func nextPage(from *url.URL, h http.Header) (*url.URL, error) {
	for _, line := range h["Link"] {
		for link := range strings.SplitSeq(line, ",") {
			target, params, _ := strings.Cut(strings.TrimSpace(link), ";")
			if !strings.Contains(strings.ReplaceAll(params, " ", ""), `rel="next"`) {
				continue
			}
			u, err := from.Parse(strings.Trim(target, "<> "))
			if err != nil {
				return nil, err
			}
			if u.Host != from.Host || u.Scheme != from.Scheme {
				return nil, errForeignPage
			}
			return u, nil
		}
	}
	return nil, nil
}

// collect returns the items of an iterator, or its error.
func collect[T any](seq iter.Seq2[T, error]) ([]T, error) {
	list := []T{}
	for v, err := range seq {
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// ownerOf sets the owner that an answer names to an operator.
func ownerOf[T any, P record[T]](v P, h http.Header) {
	if owner := h.Get("Podyard-Owner"); owner != "" {
		v.own(owner)
	}
}

// find gets a record by its path.
func find[T any, P record[T]](ctx context.Context, c *Client, path string) (v T, err error) {
	h, err := c.do(ctx, to(c.control, http.MethodGet, path, nil), &v)
	ownerOf(P(&v), h)
	return v, err
}

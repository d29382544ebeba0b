package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/podyard/podyard/serverless/endpoints"
)

// Operations returns the table of operations, for programs that describe, log or count
// requests. It has every operation of the published description, also those that are not
// offered, and the operations that this package adds. The caller owns the table.
func Operations() OperationTable {
	rows := table()
	list := make(OperationTable, len(rows))
	for i := range rows {
		list[i] = rows[i].Operation
		list[i].Methods = slices.Clone(list[i].Methods)
	}
	return list
}

// An OperationTable is a list of operations.
type OperationTable []Operation

// Find returns the operation of a request and the values of the placeholders in its path,
// or nil if there is none. It decides as a handler of New with all services does.
func (t OperationTable) Find(method string, u *url.URL) (o *Operation, values map[string]string) {
	part, path := apiOf(u.Path), ""
	if part != APIBalance && !isClean(u.Path) {
		return nil, nil
	}
	for i := range t {
		o := &t[i]
		if o.API != part && (o.API != APIWorkers || part != APIJobs) || path != "" && path != o.Path {
			continue
		}
		v, ok := matchPath(o.Path, u.EscapedPath())
		if part == APIBalance {
			v, ok = matchBalanced(u)
		}
		if !ok {
			continue
		}
		if slices.Contains(o.methodsServed(), method) {
			return o, v
		}
		path = o.Path // another operation of this path may have the method
	}
	return nil, nil
}

// Named returns the operation with this name, or nil.
func (t OperationTable) Named(name string) *Operation {
	i := slices.IndexFunc(t, func(o Operation) bool { return o.Name == name })
	if i < 0 {
		return nil
	}
	return &t[i]
}

// methodsServed returns the methods, with HEAD if it is served.
func (o *Operation) methodsServed() []string {
	if o.SideEffects || !slices.Contains(o.Methods, http.MethodGet) {
		return o.Methods
	}
	return append([]string{http.MethodHead}, o.Methods...)
}

// apiOf returns the part of the interface that a path belongs to. Paths of the worker
// protocol, and paths that no part has, belong to APIJobs.
func apiOf(path string) API {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	second, _, _ := strings.Cut(rest, "/")
	switch {
	case strings.HasPrefix(path, balancePrefix):
		return APIBalance
	case first == "v1":
		return APILegacy
	case first == "v2" && endpoints.IsReserved(second):
		return APIControl
	case isOpenAI(path):
		return APIOpenAI
	}
	return APIJobs
}

// isOpenAI reports whether errors of this path have OpenAI's form.
func isOpenAI(path string) bool {
	parts := strings.SplitN(path, "/", 5)
	return len(parts) == 5 && parts[1] == "v2" && parts[3] == "openai"
}

// matchBalanced is matchPath for the operation of load-balancing endpoints.
func matchBalanced(u *url.URL) (values map[string]string, ok bool) {
	p, ok := placeAt(u)
	return map[string]string{"endpoint": p.endpoint, "path": unescape(strings.TrimPrefix(p.path, "/"))}, ok
}

// matchPath compares an escaped path with a pattern, segment by segment.
func matchPath(pattern, path string) (values map[string]string, ok bool) {
	values = map[string]string{}
	for {
		p, restP, moreP := strings.Cut(strings.TrimPrefix(pattern, "/"), "/")
		path = strings.TrimPrefix(path, "/")
		if name, multi := strings.CutSuffix(p, "...}"); multi {
			values[name[1:]] = unescape(path)
			return values, true
		}
		s, rest, more := strings.Cut(path, "/")
		if !matchSegment(p, unescape(s), values) {
			return nil, false
		}
		if !moreP || !more {
			return values, moreP == more
		}
		pattern, path = restP, rest
	}
}

func matchSegment(pattern, s string, values map[string]string) bool {
	name, placeholder := strings.CutPrefix(pattern, "{")
	if !placeholder {
		return pattern == s
	}
	values[strings.TrimSuffix(name, "}")] = s
	return s != ""
}

func unescape(s string) string {
	if u, err := url.PathUnescape(s); err == nil {
		return u
	}
	return s
}

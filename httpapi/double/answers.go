package double

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"time"

	"github.com/podyard/podyard/internal/faultplan"
)

// An HTTPAnswer is what workers of ImageAnswers answer to requests that match.
type HTTPAnswer struct {
	Method string        // empty: any
	Path   string        // a pattern, in which '*' matches any characters; empty: any
	After  time.Duration // by the clock, before the answer
	Status int           // 0: 200
	Header http.Header
	Body   string
}

func (a *HTTPAnswer) check() error {
	switch {
	case a.Status != 0 && (a.Status < 200 || a.Status > 599):
		return errors.New("a status is from 200 to 599")
	case a.After < 0:
		return errors.New("after must not be negative")
	}
	return nil
}

// ImageAnswers is ImageHTTP for workers that answer what is given: the first of list that matches a
// request, 404 if none does. A health check has the answer with its very path, else 200.
func (s *Server) ImageAnswers(name string, list []HTTPAnswer, o *ImageOptions) error {
	for i := range list {
		if err := list[i].check(); err != nil {
			return fmt.Errorf("double: image %q: answer %d: %w", name, i, err)
		}
	}
	return s.ImageHTTP(name, &answers{list: slices.Clone(list), sleep: s.Sleep}, o)
}

type answers struct {
	list  []HTTPAnswer
	sleep func(ctx context.Context, d time.Duration) error
}

// ServeHTTP implements http.Handler.
func (h *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	isCheck := r.UserAgent() == healthAgent
	for i := range h.list {
		a := &h.list[i]
		if isCheck && a.Path != r.URL.Path || a.Method != "" && a.Method != r.Method || a.Path != "" && !faultplan.Like(a.Path, r.URL.Path) {
			continue
		}
		if !isCheck && h.sleep(r.Context(), a.After) != nil {
			return // the client has gone
		}
		for name, values := range a.Header {
			w.Header()[http.CanonicalHeaderKey(name)] = values
		}
		w.WriteHeader(max(a.Status, http.StatusOK))
		_, _ = w.Write([]byte(a.Body))
		return
	}
	if !isCheck {
		w.WriteHeader(http.StatusNotFound)
	}
}

// ImageForward is ImageHTTP for workers that pass requests and health checks on to a server at a URL,
// such as one that the test runs. The clock waits for it as for a handler.
func (s *Server) ImageForward(name, to string, o *ImageOptions) error {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("double: image %q: %q is no URL of a server", name, to)
	}
	return s.ImageHTTP(name, &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u)
			r.Out.Host = r.In.Host
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, _ error) { panic(http.ErrAbortHandler) },
	}, o)
}

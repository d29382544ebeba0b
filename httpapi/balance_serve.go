package httpapi

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"

	"github.com/podyard/podyard/internal/pipelistener"
	"github.com/podyard/podyard/serverless"
)

// ServeHTTP serves a load-balancing endpoint with a handler in this process, until ctx ends
// (docs/decisions.md 44). The handler gets a path as a worker elsewhere does, without the
// prefix /lb/{endpoint}. Requests in flight are drained as serverless.Service.ServeRequests
// says, whose errors ServeHTTP returns; EnsureBalanced creates the endpoint. o may be nil.
func ServeHTTP(ctx context.Context, jobs *serverless.Service, endpoint string, h http.Handler, o *serverless.ServeOptions) error {
	l := pipelistener.New()
	srv := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)} //nolint:gosec // its only client is the proxy, which has timeouts
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	err := jobs.ServeRequests(ctx, endpoint, l.Dial, o)
	err = errors.Join(err, srv.Close())
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

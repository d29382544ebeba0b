package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/containerd/errdefs"
)

// libpodRoot is the root of Podman's own API, from version 4. It can do what the Docker API
// cannot.
const libpodRoot = "http://podman/v4.0.0/libpod"

// What is read of an answer of the engine, which lists all that it has.
const (
	maxHead   = 64 << 10
	maxAnswer = 64 << 20
)

// libpod calls Podman's own API. It sends in unless in is nil, and decodes the answer into
// out unless out is nil. Its errors have the errdefs kinds that Docker API errors have.
func (r *Runtime) libpod(ctx context.Context, method, path string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, libpodRoot+path, &body)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	dial := r.api.Dialer()
	transport := &http.Transport{
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxHead,
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	if answer.StatusCode >= http.StatusMultipleChoices {
		return libpodError(answer)
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(out)
}

// nameTaken is the cause that Podman 4 sends with status 500 for a conflict of names.
const nameTaken = "that name is already in use"

// libpodError returns the error in an answer of Podman.
func libpodError(answer *http.Response) error {
	var said struct{ Cause, Message string }
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(&said); err != nil {
		return fmt.Errorf("podman answers %s: %w", answer.Status, err)
	}
	switch {
	case answer.StatusCode == http.StatusNotFound:
		return errdefs.ErrNotFound.WithMessage(said.Message)
	case answer.StatusCode == http.StatusConflict, said.Cause == nameTaken:
		return errdefs.ErrConflict.WithMessage(said.Message)
	case answer.StatusCode >= http.StatusInternalServerError:
		return errdefs.ErrInternal.WithMessage(said.Message)
	}
	return errdefs.ErrInvalidArgument.WithMessage(said.Message)
}

package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"

	"github.com/containerd/errdefs"
)

// libpodRoot is Podman's own API, from version 4, for what the Docker API cannot do.
const libpodRoot = "http://podman/v4.0.0/libpod"

// libpod calls Podman's own API: in is sent unless it is nil, and the answer goes to out
// unless that is nil. Its errors are of the kinds that those of the Docker API have.
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
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // it is only read
	if answer.StatusCode >= http.StatusMultipleChoices {
		return libpodError(answer)
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(answer.Body).Decode(out)
}

// nameTaken is what Podman 4 answers with 500.
const nameTaken = "that name is already in use"

// libpodError is the error in an answer of Podman.
func libpodError(answer *http.Response) error {
	var said struct{ Cause, Message string }
	if err := json.NewDecoder(answer.Body).Decode(&said); err != nil {
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

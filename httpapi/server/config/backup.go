package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/podyard/podyard/backend/disk"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/internal/errno"
	"github.com/podyard/podyard/problem"
)

// The socket at which a server is asked for a backup: in a directory of the data directory
// that only its owner enters.
const (
	controlDir    = "control"
	controlSocket = "server.sock"
)

// maxSocketPath is how many bytes the address of a Unix socket has at most, everywhere.
const maxSocketPath = 100

// BackupListener listens on a Unix socket in Options.Data, for Backup in another process of
// the same user. The program gives it to server.Server.Run, which closes it. It is not ok
// without a data directory.
func (p *Parts) BackupListener(ctx context.Context) (l server.Listener, ok bool, err error) {
	if p.disk == nil {
		return l, false, nil
	}
	dir := filepath.Join(p.own.Data, controlDir)
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.Chmod(dir, 0o700)); err != nil {
		return l, false, p.own.wrong("Data", err)
	}
	// Who has the store has the directory: what is left there is of a server that has ended.
	if err := os.Remove(filepath.Join(dir, controlSocket)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return l, false, p.own.wrong("Data", err)
	}
	err = atSocket(p.own, func(path string) error {
		socket, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
		if err != nil {
			return err
		}
		socket.(*net.UnixListener).SetUnlinkOnClose(false) // the next server removes it
		l = server.On(socket, http.HandlerFunc(p.serveBackup))
		if err := os.Chmod(path, 0o600); err != nil {
			return errors.Join(err, socket.Close())
		}
		return nil
	})
	if err != nil {
		return l, false, p.own.wrong("Data", fmt.Errorf("listen for backups: %w", err))
	}
	return l, true, nil
}

// atSocket calls fn with a path of the socket that is short enough for an address: below a long
// data directory that is a link in a temporary directory.
func atSocket(o *Options, fn func(path string) error) (err error) {
	dir, err := filepath.Abs(filepath.Join(o.Data, controlDir))
	if err != nil {
		return err
	}
	if path := filepath.Join(dir, controlSocket); len(path) <= maxSocketPath {
		return fn(path)
	}
	short := os.TempDir()
	if len(short) > maxSocketPath/2 {
		short = "/tmp"
	}
	if short, err = os.MkdirTemp(short, "podyard-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(short)) }()
	link := filepath.Join(short, "d")
	if err := os.Symlink(dir, link); err != nil {
		return err
	}
	return fn(filepath.Join(link, controlSocket))
}

// A backupRequest is what the server is asked for.
type backupRequest struct {
	Dir string `json:"dir"` // absolute, and not there yet
}

// serveBackup makes the copy that another process asks for. The answer is empty, or a problem.
func (p *Parts) serveBackup(w http.ResponseWriter, r *http.Request) {
	var ask backupRequest
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&ask)
	if r.Method != http.MethodPost || err != nil || !filepath.IsAbs(ask.Dir) {
		httpapi.WriteProblem(w, problem.New(problem.Invalid, "ask with POST for an absolute directory"))
		return
	}
	if err := p.disk.Backup(r.Context(), filepath.Join(ask.Dir, storeName)); err != nil {
		p.log.Error("the store was not copied", "dir", ask.Dir, "err", err)
		if known := (*problem.Error)(nil); !errors.As(err, &known) {
			err = problem.Newf(problem.Unavailable, "%w (the server makes the copy: its user must be able to write there)", err) // who asks owns the directory, and sees why
		}
		httpapi.WriteProblem(w, err)
		return
	}
	p.log.Info("the store was copied", "dir", ask.Dir)
}

// askForBackup asks the server that uses the data directory for a copy. asked is false when
// there is none.
func askForBackup(ctx context.Context, o *Options, dir string) (asked bool, err error) {
	body, err := json.Marshal(backupRequest{dir})
	if err != nil {
		return false, err
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
		DialContext: func(ctx context.Context, _, _ string) (c net.Conn, err error) {
			err = atSocket(o, func(path string) (err error) {
				c, err = (&net.Dialer{}).DialContext(ctx, "unix", path)
				return err
			})
			return c, err
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://server/backup", strings.NewReader(string(body)))
	if err != nil {
		return false, err
	}
	answer, err := client.Do(req)
	switch {
	case errors.Is(err, fs.ErrNotExist), errno.Refused(err):
		return false, nil
	case err != nil:
		return true, o.wrong("Data", fmt.Errorf("ask the server that uses the directory: %w", err))
	}
	if answer.StatusCode != http.StatusOK {
		var p problem.Document
		if err = json.NewDecoder(io.LimitReader(answer.Body, 64<<10)).Decode(&p); err == nil {
			err = errors.New(p.Detail)
		}
	}
	return true, errors.Join(err, answer.Body.Close())
}

// storeError names the data directory where the store is refused.
func (o *Options) storeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, disk.ErrLocked):
		return o.wrong("Data", errors.New("another server uses this directory"))
	case errors.Is(err, disk.ErrKey), errors.Is(err, disk.ErrFormat):
		return o.wrong("Data", err)
	}
	return err
}

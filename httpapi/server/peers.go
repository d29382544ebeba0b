package server

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/conns"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

// A server reads logs and loads of the pods of another server at paths below peerPrefix
// (docs/servers.md). The request has no key of a user: the server that asks has checked it. It
// has a token that only servers of one store can make, for one request to one server.

// peerPrefix begins the paths that servers use among themselves.
const peerPrefix = "/peer/v1/"

// peerSecretName is the name of the secret of the tokens.
const peerSecretName = "peers"

// Limits of what servers ask each other.
const (
	peerTokenLife = 30 * time.Second // how old a token may be, or how far ahead
	peerDialTime  = 3 * time.Second
	peerWait      = 5 * time.Second  // for the head of an answer
	peerBeat      = 10 * time.Second // between two signs of life of a stream
	peerSilence   = 3 * peerBeat     // until a stream without a sign of life is given up
	peerPause     = 5 * time.Second  // until a server that did not answer is asked for loads again
	sampleTime    = time.Second      // for one load
	peerHead      = 64 << 10         // bytes of the head of an answer
	peerText      = 4 << 20          // bytes of a line of a log, with the signs of life before it
)

// peers is one server among those that read from each other.
type peers struct {
	name   string
	secret []byte
	clock  pods.Clock
	log    *slog.Logger
	client *http.Client

	mu   sync.Mutex
	away map[string]time.Time // addresses that did not answer, and until when they are not asked for loads
}

func newPeers(name string, secret []byte, c pods.Clock, log *slog.Logger) *peers {
	return &peers{name: name, secret: secret, clock: c, log: log, client: peerClient(), away: map[string]time.Time{}}
}

const peerScheme = "Podyard-Peer "

// token is valid for one method and URI at the server to, for a short time.
func (p *peers) token(now time.Time, to, method, uri string) string {
	at := strconv.FormatInt(now.UnixMilli(), 10)
	mac := hmac.New(sha256.New, p.secret)
	for _, part := range []string{at, to, method, uri} {
		mac.Write([]byte(part + "\n"))
	}
	return at + "." + hex.EncodeToString(mac.Sum(nil))
}

var errNoPeer = problem.New(problem.Unauthorized, "this path is for the other servers of the store")

// check returns an error if r is not of another server of the store, or is for another one.
func (p *peers) check(r *http.Request) error {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), peerScheme)
	at, _, two := strings.Cut(token, ".")
	ms, err := strconv.ParseInt(at, 10, 64)
	if !ok || !two || err != nil {
		return errNoPeer
	}
	sent := time.UnixMilli(ms)
	if age := p.clock.Now().Sub(sent); age > peerTokenLife || age < -peerTokenLife {
		return errNoPeer
	}
	if !hmac.Equal([]byte(token), []byte(p.token(sent, p.name, r.Method, r.URL.RequestURI()))) {
		return errNoPeer
	}
	return conns.Accept(r.Context(), conns.Owner{Operator: true})
}

// handler serves the other servers from the hosts of s alone: what it does not have it does not
// ask anybody else for.
func (p *peers) handler(s *pods.Service) http.Handler {
	mux := http.NewServeMux()
	handle := func(path string, f func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc("GET "+peerPrefix+path, func(w http.ResponseWriter, r *http.Request) {
			err := p.check(r)
			if err == nil {
				err = f(w, r)
			}
			if err != nil {
				httpapi.WriteProblem(w, err)
			}
		})
	}
	handle("pods/{id}/log", func(w http.ResponseWriter, r *http.Request) error { return serveLog(s, w, r) })
	handle("pods/{id}/exec", func(w http.ResponseWriter, r *http.Request) error { return serveExec(s, w, r) })
	handle("pods/{id}/sample", func(w http.ResponseWriter, r *http.Request) error { return serveSample(s, w, r) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { httpapi.WriteProblem(w, errNoPath) })
	return mux
}

// do asks the server to, at address. The caller closes the body of an answer with the status 200.
func (p *peers) do(ctx context.Context, to, address, path string) (*http.Response, error) {
	return p.ask(ctx, to, address, path, "")
}

// upgrade is do for a path at which the connection gets another protocol.
func (p *peers) upgrade(ctx context.Context, to, address, path string) (*http.Response, error) {
	return p.ask(ctx, to, address, path, execProtocol)
}

func (p *peers) ask(ctx context.Context, to, address, path, protocol string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(address, "/")+peerPrefix+path, nil)
	if err != nil {
		return nil, p.awayError(ctx, to, err)
	}
	uri := req.URL.RequestURI()
	if i := strings.Index(uri, peerPrefix); i > 0 {
		uri = uri[i:] // a proxy takes off what is before
	}
	req.Header.Set("Authorization", peerScheme+p.token(p.clock.Now(), to, req.Method, uri))
	want := http.StatusOK
	if protocol != "" {
		want = http.StatusSwitchingProtocols
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", protocol)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, p.awayError(ctx, to, err)
	}
	if resp.StatusCode != want {
		return nil, p.awayError(ctx, to, errors.Join(errors.New("status "+strconv.Itoa(resp.StatusCode)), resp.Body.Close()))
	}
	return resp, nil
}

// awayError names the server that did not answer. What was wrong is for the log: it names
// addresses.
func (p *peers) awayError(ctx context.Context, to string, err error) error {
	if ctx.Err() == nil {
		p.log.WarnContext(ctx, "another server does not answer", "server", to, "err", err)
	}
	return problem.Newf(problem.Unavailable, "%w: %s", pods.ErrHostAway, to)
}

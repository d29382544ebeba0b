package console

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/incidents"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
)

// Options configures a Console. The zero value is safe: nobody can sign in.
type Options struct {
	// Auth checks the keys that users sign in with. Use the Authenticator of the API.
	// Default: every key is refused.
	Auth httpapi.Authenticator
	// Jobs adds to what the API says: the times and payloads of a job, and the last hour of
	// each endpoint. The console asks it about a job only when the API has shown this job to
	// the user. Default: pages do without.
	Jobs *serverless.Service
	// Incidents returns what is wrong, such as server.Server.Incidents: the overview begins with it.
	// Operators see all, others what is wrong with their own. Default: nothing.
	Incidents func() []incidents.Incident
	// JobTimes returns how long jobs of an endpoint have waited for a worker and run, counted since the start
	// of the program, such as JobTimes of backend/prometheus: counts[i] is of times up to ends[i] milliseconds
	// and longer than the end before, and the last count, one more than ends, of longer ones. It is called
	// once a minute for each endpoint while Run runs, and returns nil for one that it does not know.
	// Default: the pages have no latency over time.
	JobTimes func(endpoint string) (ends []int64, waited, ran []uint64)
	// Path is the path of the console in the address bar of a browser, with a slash at both
	// ends. Default "/console/". A request may come with it or, from a proxy that cuts it
	// off, without it.
	Path string
	// Secret encrypts the cookies of sessions: 32 bytes or more, which nobody else knows.
	// Servers with the same secret take each other's sessions. Default: a random one, so
	// that sessions end with the process.
	Secret []byte
	// Identify returns the key as which a request acts, for programs with their own sign-in.
	// The console then has no sign-in. It is called for each request, and ok is false for a
	// request that nobody has signed in for. Such a program must protect its own cookies:
	// SameSite and HttpOnly. Default: users sign in with a key.
	Identify func(r *http.Request) (key string, ok bool)
	// InFlight counts what answers hold, and limits it. Use the one of the API: what the console
	// answers to a user then counts together with what the API does. Default: no limits.
	InFlight *budget.InFlight
	// PodDomain is httpapi.Options.PodDomain, for links to the HTTP ports of pods. Leave it empty
	// where the ports take a key, which a link does not have.
	PodDomain string
	// ReadOnly refuses everything that changes something.
	ReadOnly bool
	// HidePayloads keeps inputs and outputs of jobs from the pages. Logs and errors stay.
	HidePayloads bool
	// Source returns the address that a request comes from, to slow down who tries wrong keys: after
	// 5 in a minute. Behind a proxy use httpapi.Options.Source, which knows trusted proxies.
	// Default: the address of the connection.
	Source func(r *http.Request) string
	// Clock is the clock of sessions. Default: the system's.
	Clock pods.Clock
	// Logger gets failures that users do not see. Default: nothing is logged.
	Logger *slog.Logger
}

// A Console is the handler of the pages. It is safe for concurrent use.
type Console struct {
	Options

	api     http.Handler
	table   httpapi.OperationTable
	assets  *assets
	csrf    *http.CrossOriginProtection
	mux     *http.ServeMux
	seal    *sealer
	ended   signOuts
	tries   tries
	viewers viewers
	history history
	known   atomic.Pointer[[]string] // see operations
}

const defaultPath = "/console/"

// minSecret is the least length of Options.Secret.
const minSecret = 32

// New returns a console on the handler of the API: what httpapi.New or server.Server.Handler
// returns. o may be nil, and then nobody can sign in. An error says which option is wrong.
func New(api http.Handler, o *Options) (*Console, error) {
	c := &Console{api: api, table: httpapi.Operations(), csrf: http.NewCrossOriginProtection(), mux: http.NewServeMux()}
	if o != nil {
		c.Options = *o
	}
	if err := c.setDefaults(); err != nil {
		return nil, err
	}
	var err error
	if c.assets, err = loadAssets(); err != nil {
		return nil, err
	}
	if c.seal, err = newSealer(c.Secret, c.Path); err != nil {
		return nil, err
	}
	c.history.times = c.JobTimes
	c.history.init()
	c.tries.by, c.ended.at, c.viewers.by = map[string]int{}, map[string]time.Time{}, map[string]int{}
	c.routes()
	return c, nil
}

func (c *Console) setDefaults() error {
	if c.Path == "" {
		c.Path = defaultPath
	}
	if !strings.HasPrefix(c.Path, "/") || !strings.HasSuffix(c.Path, "/") || strings.ContainsAny(c.Path, "\"'<>&?#;, ") {
		return fmt.Errorf("console: Path %q must begin and end with a slash", c.Path)
	}
	if c.Secret == nil {
		c.Secret = make([]byte, minSecret)
		_, _ = rand.Read(c.Secret) // it never fails
	}
	if len(c.Secret) < minSecret {
		return errors.New("console: Secret must have 32 bytes or more")
	}
	if c.Auth == nil {
		c.Auth = nobody{}
	}
	if c.Source == nil {
		c.Source = new(httpapi.Options).Source
	}
	if c.Clock == nil {
		c.Clock = clock.System{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// nobody is an Authenticator without keys.
type nobody struct{}

func (nobody) Authenticate(context.Context, string) (httpapi.Identity, error) {
	return httpapi.Identity{}, httpapi.ErrKey
}

func (c *Console) routes() {
	c.mux.HandleFunc("GET /a/{hash}/{name...}", c.serveAsset)
	c.mux.HandleFunc("GET /favicon.svg", c.serveIcon)
	c.mux.HandleFunc("GET /session", c.getSession)
	c.mux.HandleFunc("POST /session", c.signIn)
	c.mux.HandleFunc("DELETE /session", c.signOut)
	c.mux.HandleFunc("/api/", c.signedIn(c.forward))
	for path, do := range map[string]func(*httpapi.Answer, *http.Request, *session){
		"overview":                    c.overview,
		"waiting/{endpoint}":          c.waiting,
		"endpoint/{endpoint}":         c.endpoint,
		"workers/{endpoint}":          c.workers,
		"history/{endpoint}":          c.showHistory,
		"jobs":                        c.allJobs,
		"jobs/{endpoint}":             c.jobs,
		"job/{endpoint}/{job}":        c.showJob,
		"job/{endpoint}/{job}/{part}": c.showPayload,
		"webhooks":                    c.webhooks,
		"find":                        c.find,
	} {
		c.mux.HandleFunc("GET /data/"+path, c.answered(inTurn(do)))
	}
	c.mux.HandleFunc("GET /data/tail/{endpoint}/{job}", c.answered(c.tail))
	c.mux.HandleFunc("GET /data/live", c.answered(c.live))
	for _, path := range []string{"/data", "/data/", "/a", "/a/", "/session/", "/api"} {
		c.mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { refuse(w, errNoPage) })
	}
	c.mux.HandleFunc("/", c.servePage)
}

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A client that does not read is cut off, signed in or not, also at the bytes that net/http would
	// write when the handler has returned.
	a := &outermost{Answer: httpapi.NewAnswer(w, nil, httpapi.Identity{})}
	c.serve(a, r)
	if !a.hijacked {
		_ = a.FlushError() // the client may be gone
	}
}

// An outermost is the writer of an answer. It knows whether the connection became a WebSocket, whose
// answer must not be flushed.
type outermost struct {
	*httpapi.Answer

	hijacked bool
}

// Hijack implements http.Hijacker.
func (w *outermost) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.hijacked = true
	return http.NewResponseController(w.Answer).Hijack()
}

func (c *Console) serve(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	if !c.sameSite(r) {
		refuse(w, errCrossSite)
		return
	}
	// The escaped path keeps ids apart from the slashes around them.
	whole := r.URL.EscapedPath()
	if whole+"/" == c.Path {
		w.Header().Set("Location", c.Path)
		w.WriteHeader(http.StatusPermanentRedirect)
		return
	}
	rest, ok := strings.CutPrefix(whole, c.Path)
	if !ok {
		rest = strings.TrimPrefix(whole, "/")
	}
	inner, err := cutTo(r, "/"+rest)
	if err != nil || !isClean(inner.URL) {
		refuse(w, errNoPage)
		return
	}
	c.mux.ServeHTTP(w, inner)
}

// isClean reports whether a path has no empty segments and no dots. The mux would answer
// another one with a redirect to a path outside of the console.
func isClean(u *url.URL) bool {
	for _, p := range [...]string{u.Path, u.EscapedPath()} {
		if c := path.Clean(p); strings.Contains(p, "//") || c != p && c+"/" != p {
			return false
		}
	}
	return true
}

var (
	errNoPage    = problem.New(problem.NotFound, "The console has no such page.")
	errCrossSite = problem.New(problem.Forbidden, "The console takes requests of its own pages only.")
	errReadOnly  = problem.New(problem.Forbidden, "This console is read-only.")
	errNoSession = problem.New(problem.Unauthorized, "You are not signed in, or the session has ended.")
	errNotHere   = problem.New(problem.NotFound, "The console does not call this operation.")
	errHidden    = problem.New(problem.Forbidden, "This console does not show payloads.")
)

// pageHeader is on every request of the pages that changes something. Another site cannot
// send it without asking first, which is never allowed.
const pageHeader = "Podyard-Console"

// sameSite reports whether a request may come from the console's own pages. A navigation to a
// page may come from anywhere: it has no cookie then, and changes nothing.
func (c *Console) sameSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return site == "" || site == "same-origin" || site == "none" || r.Header.Get("Sec-Fetch-Mode") == "navigate"
	}
	return c.csrf.Check(r) == nil && r.Header.Get(pageHeader) == "1"
}

// setHeaders sets what every answer has. Pages replace the policy by their own.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cache-Control", "no-store")
}

// refuse answers an error document.
func refuse(w http.ResponseWriter, err error) { httpapi.WriteProblem(w, err) }

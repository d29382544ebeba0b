// Package webhook posts webhooks over HTTP: one attempt at a time, only to addresses
// that are allowed, and signed if there are secrets. The service decides when to try
// again.
//
// The URL of a webhook comes from a user, and the server may reach addresses that users
// cannot. So the address is checked when the connection is made, after the name was resolved.
// Redirects are not followed, no proxy is used, and only the beginning of an answer is read.
package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/internal/errno"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// Options of a Sender. The zero value, and nil, work.
type Options struct {
	// AllowPrivate lets webhooks go to addresses that are not public: loopback, private
	// networks, this host's link. It is for tests and laptops.
	AllowPrivate bool
	// Deny are receivers that are refused even where AllowPrivate is set: host names, in
	// ASCII and any letter case; "*.example.com" for all names below example.com, and not
	// itself; IP addresses; CIDR blocks. A block or address of IPv4 covers its mapped, NAT64
	// and 6to4 forms. Addresses are compared after the name was resolved. Default: none.
	Deny []string
	// Secrets sign by the Standard Webhooks scheme: "whsec_" and the base64 of 24 to 64
	// bytes. The first is the current one; all are sent as signatures, so that receivers
	// can change over. Default: none, and nothing is signed; the header webhook-id is sent
	// all the same.
	Secrets []string
	// Timeout of an attempt. Default 30 s.
	Timeout time.Duration
	// Clock is what the time in a signature follows. Default: the system's.
	Clock serverless.Clock
	// UserAgent. Default "podyard-webhook".
	UserAgent string
	// Transport makes the requests, for a program that receives its own webhooks or sends
	// them by ways of its own. It decides what may be reached: AllowPrivate has no effect,
	// and Deny must be empty. Default: connections of the Sender's own.
	Transport http.RoundTripper
}

// maxAnswer is how much of an answer is read, so that its connection can be used again.
const maxAnswer = 64 << 10

// A Sender posts deliveries. It is safe for concurrent use.
type Sender struct {
	client  *http.Client
	secrets [][]byte
	clock   serverless.Clock
	agent   string
}

var _ serverless.Sender = (*Sender)(nil)

// New returns a sender. Errors are about an entry of Secrets, which they do not show, or of
// Deny, or that there are both Deny and Transport.
func New(o *Options) (*Sender, error) {
	if o == nil {
		o = &Options{}
	}
	if o.Transport != nil && len(o.Deny) > 0 {
		return nil, errors.New("webhook: deny has no effect with a transport of the program")
	}
	timeout := cmp.Or(o.Timeout, 30*time.Second)
	g := &guard{allowPrivate: o.AllowPrivate, dialer: net.Dialer{Timeout: timeout}}
	g.dialer.Control = g.control
	s := &Sender{clock: o.Clock, agent: cmp.Or(o.UserAgent, "podyard-webhook"), client: newClient(o.Transport, g, timeout)}
	if s.clock == nil {
		s.clock = clock.System{}
	}
	for i, text := range o.Secrets {
		secret, err := parseSecret(text)
		if err != nil {
			return nil, fmt.Errorf("webhook: secret %d: %w", i, err)
		}
		s.secrets = append(s.secrets, secret)
	}
	for i, entry := range o.Deny {
		if err := g.deny(entry); err != nil {
			return nil, fmt.Errorf("webhook: deny %d: %w", i, err)
		}
	}
	return s, nil
}

func newClient(t http.RoundTripper, g *guard, timeout time.Duration) *http.Client {
	if t == nil {
		t = &http.Transport{
			DialContext: g.dial, ForceAttemptHTTP2: true,
			MaxIdleConns: 256, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute,
			MaxResponseHeaderBytes: maxAnswer,
		}
	}
	return &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     t,
	}
}

// Send posts the payload of d, and the job's trace context in headers. It returns
// the status of the answer.
func (s *Sender) Send(ctx context.Context, d *queue.Delivery) (status int, err error) {
	u, err := url.Parse(d.Job.Webhook)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return 0, errors.New("the URL of the webhook is not http or https")
	}
	if u.User != nil {
		return 0, errors.New("the URL of the webhook has credentials in it")
	}
	body := d.Payload()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return 0, errors.New("the URL of the webhook is not valid")
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", s.agent)
	r.Header.Set("Webhook-Id", d.ID)
	if t := d.Job.Trace; t.Parent != "" {
		r.Header.Set("Traceparent", t.Parent)
		if t.State != "" {
			r.Header.Set("Tracestate", t.State)
		}
	}
	s.sign(r.Header, d.ID, body)
	answer, err := s.client.Do(r)
	if err != nil {
		return 0, explain(err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was only read
	_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer)
	if after := s.retryAfter(answer); after > 0 {
		return answer.StatusCode, &serverless.RetryAfterError{After: after}
	}
	return answer.StatusCode, nil
}

// retryAfter returns how long a receiver that did not take the webhook asks to wait; 0: it does not.
func (s *Sender) retryAfter(answer *http.Response) time.Duration {
	text := answer.Header.Get("Retry-After")
	if answer.StatusCode < 300 || text == "" {
		return 0
	}
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(s.clock.Now()), 0).Round(time.Second)
	}
	return 0
}

// explain turns an error of the client into one that names neither the URL, which may
// have a secret in it, nor addresses.
func explain(err error) error {
	var dns *net.DNSError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, errDenied):
		return errDenied
	case errors.Is(err, errPrivate):
		return errPrivate
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("the receiver did not answer in time")
	case errors.As(err, &dns):
		return errors.New("the name of the receiver could not be resolved")
	case errno.Refused(err):
		return errors.New("the receiver refused the connection")
	}
	if why := explainTLS(err); why != "" {
		return errors.New(why)
	}
	return errors.New("the connection to the receiver failed")
}

// explainTLS says why there is no TLS connection to a receiver, in words of our own: an error of the
// standard library names hosts. It returns "" for other errors.
func explainTLS(err error) string {
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		other     *tls.CertificateVerificationError
		alert     *net.OpError // crypto/tls wraps an alert of the other side in one; its text is one of a fixed list
		noTLS     tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &authority):
		return "the certificate of the receiver is from an authority that this server does not know"
	case errors.As(err, &name):
		return "the certificate of the receiver is for another name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate of the receiver has expired, or is not valid yet"
	case errors.As(err, &invalid), errors.As(err, &other):
		return "the certificate of the receiver is not valid"
	case errors.As(err, &alert) && alert.Op == "remote error":
		return "the receiver ended the TLS handshake: " + alert.Err.Error()
	case errors.As(err, &noTLS), errors.Is(err, http.ErrSchemeMismatch):
		return "the receiver does not speak TLS: its URL may have to begin with http"
	}
	return ""
}

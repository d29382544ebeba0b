// Package webhook posts webhooks over HTTP: one attempt at a time, only to addresses
// that are allowed, and signed if there are secrets. The service decides when to try
// again.
//
// The URL of a webhook comes from a user, and the server stands where users do not. So
// the address is checked when the connection is made, after the name was resolved: what
// the name meant earlier does not count. Redirects are not followed, no proxy is used,
// and only the beginning of an answer is read.
package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// Options of a Sender. The zero value, and nil, work.
type Options struct {
	// AllowPrivate lets webhooks go to addresses that are not public: loopback, private
	// networks, this host's link. It is for tests and laptops.
	AllowPrivate bool
	// Secrets sign by the Standard Webhooks scheme: "whsec_" and the base64 of 24 to 64
	// bytes. The first is the current one; all are sent as signatures, so that receivers
	// can change over. Default: none, and nothing is signed.
	Secrets []string
	// Timeout of an attempt. Default 30 s.
	Timeout time.Duration
	// Clock is what the time in a signature follows. Default: the system's.
	Clock serverless.Clock
	// UserAgent. Default "podyard-webhook".
	UserAgent string
	// Transport makes the requests, for a program that receives its own webhooks or sends
	// them by ways of its own. It decides what may be reached: AllowPrivate is not looked
	// at. Default: connections of the Sender's own.
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

// New returns a sender, or an error about a secret, which it does not show.
func New(o *Options) (*Sender, error) {
	if o == nil {
		o = &Options{}
	}
	s := &Sender{clock: o.Clock, agent: o.UserAgent}
	for i, text := range o.Secrets {
		secret, err := parseSecret(text)
		if err != nil {
			return nil, fmt.Errorf("webhook: secret %d: %w", i, err)
		}
		s.secrets = append(s.secrets, secret)
	}
	if s.clock == nil {
		s.clock = clock.System{}
	}
	if s.agent == "" {
		s.agent = "podyard-webhook"
	}
	timeout := o.Timeout
	if timeout == 0 {
		timeout = 30 * time.Second
	}
	d := &net.Dialer{Timeout: timeout}
	if !o.AllowPrivate {
		d.Control = refusePrivate
	}
	s.client = &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     o.Transport,
	}
	if o.Transport == nil {
		s.client.Transport = &http.Transport{
			DialContext: d.DialContext, ForceAttemptHTTP2: true,
			MaxIdleConns: 256, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute,
			MaxResponseHeaderBytes: maxAnswer,
		}
	}
	return s, nil
}

// errPrivate says no more than that: what a name resolves to inside is nobody's business.
var errPrivate = errors.New("the address of the webhook is not public")

// refusePrivate refuses to dial what is not public. It sees the address that is dialed.
func refusePrivate(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || !IsPublic(ap.Addr()) {
		return errPrivate
	}
	return nil
}

// Send posts the job object with its input and returns the status of the answer.
func (s *Sender) Send(ctx context.Context, d *queue.Delivery) (status int, err error) {
	u, err := url.Parse(d.Job.Webhook)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return 0, errors.New("the URL of the webhook is not http or https")
	}
	if u.User != nil {
		return 0, errors.New("the URL of the webhook has credentials in it")
	}
	body := d.Job.AppendJSON(nil, true)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return 0, errors.New("the URL of the webhook is not valid")
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", s.agent)
	s.sign(r.Header, d.ID, body)
	answer, err := s.client.Do(r)
	if err != nil {
		return 0, explain(err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was only read
	_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer)
	return answer.StatusCode, nil
}

// explain turns an error of the client into one that names neither the URL, which may
// have a secret in it, nor addresses.
func explain(err error) error {
	var dns *net.DNSError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, errPrivate):
		return errPrivate
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("the receiver did not answer in time")
	case errors.As(err, &dns):
		return errors.New("the name of the receiver could not be resolved")
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("the receiver refused the connection")
	}
	return errors.New("the connection to the receiver failed")
}

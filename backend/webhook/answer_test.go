package webhook_test

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/webhook"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/serverless"
)

func TestSendReadsWhenTheReceiverWantsTheNextAttempt(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, row := range []struct {
		status int
		header string
		want   time.Duration // 0: no wish
	}{
		{429, "120", 2 * time.Minute},
		{503, "1", time.Second},
		{301, "30", 30 * time.Second},
		{503, "Fri, 02 Jan 2026 03:05:05 GMT", time.Minute},
		{503, "Fri, 02 Jan 2026 03:00:00 GMT", 0}, // it has passed
		{503, "0", 0},
		{503, "-5", 0},
		{503, "soon", 0},
		{503, "99999999999999999999", 0},
		{503, "", 0},
		{200, "120", 0}, // it was taken
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", row.header)
			w.WriteHeader(row.status)
		}))
		status, err := sender(t, webhook.Options{AllowPrivate: true, Clock: clock.NewManual(now)}).Send(t.Context(), delivery(srv.URL))
		srv.Close()
		var got time.Duration
		if asked := (*serverless.RetryAfterError)(nil); errors.As(err, &asked) {
			got = asked.After
		} else if err != nil {
			t.Errorf("%d with Retry-After %q: %v", row.status, row.header, err)
		}
		if status != row.status || got != row.want {
			t.Errorf("%d with Retry-After %q = %d, after %v, want %v", row.status, row.header, status, got, row.want)
		}
	}
}

// The owner of a job reads why there is no connection, and nothing about names, addresses or the URL.
func TestTheCauseOfAFailureOfTLSIsSaid(t *testing.T) {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	secure, plain, strict := httptest.NewTLSServer(ok), httptest.NewServer(ok), httptest.NewUnstartedServer(ok)
	defer secure.Close()
	defer plain.Close()
	strict.TLS = &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert}
	strict.StartTLS()
	defer strict.Close()
	trusting := func(change func(*tls.Config)) http.RoundTripper {
		tr := secure.Client().Transport.(*http.Transport).Clone()
		change(tr.TLSClientConfig)
		return tr
	}
	for url, row := range map[string]struct {
		transport http.RoundTripper // nil: that of the Sender
		want      string
	}{
		secure.URL: {nil, "the certificate of the receiver is from an authority that this server does not know"},
		strings.Replace(secure.URL, "127.0.0.1", "localhost", 1): {trusting(func(*tls.Config) {}), "the certificate of the receiver is for another name"},
		secure.URL + "/old": {trusting(func(c *tls.Config) {
			c.Time = func() time.Time { return time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC) }
		}), "the certificate of the receiver has expired, or is not valid yet"},
		strings.Replace(plain.URL, "http:", "https:", 1): {nil, "the receiver does not speak TLS: its URL may have to begin with http"},
		strict.URL: {trusting(func(c *tls.Config) { c.InsecureSkipVerify = true }), "the receiver ended the TLS handshake: tls: certificate required"},
	} {
		_, err := sender(t, webhook.Options{AllowPrivate: true, Transport: row.transport}).Send(t.Context(), delivery(url+"?token=hush"))
		if err == nil || err.Error() != row.want {
			t.Errorf("Send to %s = %v, want %q", url, err, row.want)
		}
	}
}

package client

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// A Retry says how requests are repeated: after a delay that doubles, with a random part, and
// never sooner than the server asks for. A context that ends first ends the repetitions.
type Retry struct {
	// Max is the time from the first attempt in which others are made. Default 2 minutes;
	// negative: requests are not repeated.
	Max time.Duration
	// First and Longest bound the delay. Default 500 ms and 30 s.
	First, Longest time.Duration
}

func (r Retry) withDefaults() Retry {
	if r.Max == 0 {
		r.Max = 2 * time.Minute
	}
	if r.First <= 0 {
		r.First = 500 * time.Millisecond
	}
	if r.Longest <= 0 {
		r.Longest = 30 * time.Second
	}
	return r
}

// delays returns the delays of one request.
func (r Retry) delays() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(r.First), backoff.WithMaxInterval(r.Longest), backoff.WithMultiplier(2), backoff.WithMaxElapsedTime(0),
	)
}

// When a request is repeated.
type repeatable bool

const (
	// ifRefused is after a 429: nothing was done.
	ifRefused repeatable = false
	// always is after every error that may pass: a repetition changes nothing.
	always repeatable = true
)

// mayPass reports whether a request that failed with err is worth a repetition.
func (c *Client) mayPass(err error, when repeatable, keyed bool) bool {
	var e *Error
	if !errors.As(err, &e) {
		var cert *tls.CertificateVerificationError
		return when == always && !errors.As(err, &cert)
	}
	switch e.Status {
	case http.StatusTooManyRequests:
		// podyard says when waiting helps (docs/decisions.md 37).
		return e.RetryAfter > 0 || !c.additions
	case http.StatusConflict:
		return keyed // an earlier attempt is not finished (docs/decisions.md 38)
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return when == always
	}
	return false
}

// repeat makes attempts until one succeeds, or fails for good. It returns the last error.
func (c *Client) repeat(ctx context.Context, r *request, attempt func() error) error {
	if r.wrong != nil {
		return r.wrong
	}
	delays, began := c.retry.delays(), time.Now()
	for {
		err := attempt()
		if err == nil || ctx.Err() != nil || c.retry.Max < 0 || !c.mayPass(err, r.again, r.key != "") {
			return err
		}
		wait := delays.NextBackOff()
		var e *Error
		if errors.As(err, &e) {
			wait = max(wait, e.RetryAfter)
		}
		end, limited := ctx.Deadline()
		if time.Since(began)+wait > c.retry.Max || limited && time.Until(end) < wait {
			return err
		}
		if e := sleep(ctx, wait); e != nil {
			return errors.Join(e, err)
		}
	}
}

// pace waits until a second after a poll was sent. A server holds it for longer; one that does
// not is not asked all the time.
func pace(ctx context.Context, sent time.Time) error {
	return sleep(ctx, max(0, time.Second-time.Since(sent)))
}

// sleep waits for d, or returns the error of ctx if it ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

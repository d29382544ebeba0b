package apitest

import (
	"testing"

	"github.com/podyard/podyard/httpapi/double"
)

// The matches of the Require methods.
type (
	// A RequestMatch selects requests.
	RequestMatch = double.RequestMatch
	// A JobMatch selects jobs.
	JobMatch = double.JobMatch
	// A WebhookMatch selects attempts to deliver a webhook.
	WebhookMatch = double.WebhookMatch
)

// RequireRequest ends the test with the near misses unless there was a request like m, or as
// many as m asks for. It returns the first one.
func (s *Server) RequireRequest(t testing.TB, m RequestMatch) double.Entry {
	t.Helper()
	s.settle(t)
	f, err := s.Double.FindRequests(m)
	return require(t, f, err)
}

// RequireJob is RequireRequest for jobs.
func (s *Server) RequireJob(t testing.TB, m JobMatch) double.JobRecord {
	t.Helper()
	s.settle(t)
	f, err := s.Double.FindJobs(m)
	return require(t, f, err)
}

// RequireWebhook is RequireRequest for webhooks. Their signature is checked, unless m says
// otherwise.
func (s *Server) RequireWebhook(t testing.TB, m WebhookMatch) double.Delivered {
	t.Helper()
	s.settle(t)
	f, err := s.Double.FindWebhooks(m)
	return require(t, f, err)
}

// settle does everything that is due now before a test reads results.
func (s *Server) settle(t testing.TB) {
	t.Helper()
	if err := s.Double.Settle(s.ctx); err != nil {
		t.Fatal(err)
	}
}

func require[T any](t testing.TB, f *double.Found[T], err error) (first T) {
	t.Helper()
	if err == nil {
		err = f.Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Matches) > 0 {
		first = f.Matches[0]
	}
	return first
}

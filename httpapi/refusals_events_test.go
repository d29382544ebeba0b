package httpapi_test

// eventRefusals are bad requests to events (docs/decisions.md 43).
func eventRefusals() []refusal {
	const (
		types = "types must be one of queued, completed, failed, cancelled, timed_out, deleted, worker_started, worker_joined, worker_left, worker_failed"
		after = "Last-Event-ID must be an id that this stream has sent"
	)
	return []refusal{
		{"GET /v2/idle/events", "", 401, "missing bearer token", []string{"Authorization:"}},
		{"GET /v2/idle/events", "", 401, "invalid or expired token", []string{"Authorization: Bearer nobody"}},
		{"GET /v2/nowhere/events", "", 404, "endpoint not found", nil},
		{"GET /v2/nowhere/events?types=x", "", 404, "endpoint not found", nil},
		{"GET /v2/idle/events?types=", "", 422, types, nil},
		{"GET /v2/idle/events?types=started", "", 422, types, nil},
		{"GET /v2/idle/events?types=gap", "", 422, types, nil},
		{"GET /v2/idle/events?types=QUEUED", "", 422, types, nil},
		{"GET /v2/idle/events?types=queued,", "", 422, types, nil},
		{"GET /v2/idle/events?types=queued&types=x", "", 422, types, nil},
		{"GET /v2/idle/events?job=", "", 422, "job must not be empty", nil},
		{"GET /v2/idle/events?owner=bob", "", 403, "access denied", nil},
		{"GET /v2/idle/events", "", 422, after, []string{"Last-Event-ID: 1"}},
		{"GET /v2/idle/events", "", 422, after, []string{"Last-Event-ID: 0-1"}},
		{"GET /v2/idle/events", "", 422, after, []string{"Last-Event-ID: 1-x"}},
		{"GET /v2/idle/events", "", 422, after, []string{"Last-Event-ID: 2026-01-01T00:00:00Z/1"}},
		{"GET /v2/idle/events?job=", "", 422, "job must not be empty", []string{"Last-Event-ID: x"}},
	}
}

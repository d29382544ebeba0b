package budget

// Limits is how much one user may hold at once. A field of 0 is no limit. The names of the
// fields in JSON are the names of the budgets on the wire and in the configuration.
type Limits struct {
	// Jobs that a queue keeps, whatever their status, and the queued ones of them.
	Jobs       int64 `json:"jobs,omitzero"`
	QueuedJobs int64 `json:"queuedJobs,omitzero"`
	// JobBytes are the inputs, outputs and unread chunks of jobs, and once more those of dead
	// letters and of webhooks that are not settled. At the limit a queue refuses new jobs, and
	// chunks and results of jobs that it has, except small results.
	JobBytes int64 `json:"jobBytes,omitzero"`
	// Deliveries are webhooks of jobs that are not settled. At the limit a queue refuses jobs
	// that have a webhook.
	Deliveries int64 `json:"deliveries,omitzero"`
	// DeadLetters are kept copies of jobs. At the limit a queue refuses jobs that would leave one.
	DeadLetters int64 `json:"deadLetters,omitzero"`
	// JobLogBytes are the lines that jobs have printed (docs/decisions.md 63). At the limit the oldest
	// logs go.
	JobLogBytes int64 `json:"jobLogBytes,omitzero"`

	// Batches are those that a server keeps. Their requests are queued jobs, also in a draft.
	Batches   int64 `json:"batches,omitzero"`
	Schedules int64 `json:"schedules,omitzero"` // of all endpoints together

	Pods       int64 `json:"pods,omitzero"`
	Endpoints  int64 `json:"endpoints,omitzero"`
	Templates  int64 `json:"templates,omitzero"`
	Volumes    int64 `json:"volumes,omitzero"`
	Registries int64 `json:"registries,omitzero"`
	SSHKeys    int64 `json:"sshKeys,omitzero"`
	Keys       int64 `json:"keys,omitzero"` // API keys that were made over the API
	// IdempotencyKeys are those with which something was created in the last day.
	IdempotencyKeys int64 `json:"idempotencyKeys,omitzero"`
	// SecretBytes are the names, descriptions and values of secrets, and 1024 bytes more of each.
	SecretBytes int64 `json:"secretBytes,omitzero"`
	// The bytes of names, images, arguments and environments of all pods, of all endpoints with
	// their releases, and of all templates.
	PodEnvBytes      int64 `json:"podEnvBytes,omitzero"`
	EndpointEnvBytes int64 `json:"endpointEnvBytes,omitzero"`
	TemplateEnvBytes int64 `json:"templateEnvBytes,omitzero"`

	// Webhooks are deliveries that are being sent.
	Webhooks int64 `json:"webhooks,omitzero"`
	// RequestBytes are bodies of requests that are being read and decoded, and ResponseBytes
	// answers that are being written.
	RequestBytes  int64 `json:"requestBytes,omitzero"`
	ResponseBytes int64 `json:"responseBytes,omitzero"`
	// InputBytes are inputs of jobs that workers in the server's own program run. More jobs wait.
	InputBytes int64 `json:"inputBytes,omitzero"`
	// OutputBytes are outputs and chunks that these workers have made and that are being stored. More
	// jobs wait before they run.
	OutputBytes int64 `json:"outputBytes,omitzero"`
	// Connections are those of requests that a user holds open: waits, streams and WebSockets.
	Connections int64 `json:"connections,omitzero"`
	// Streams are event streams and followers of logs, and ProxiedRequests requests to workers
	// of load-balancing endpoints. Neither are part of Connections.
	Streams         int64 `json:"streams,omitzero"`
	ProxiedRequests int64 `json:"proxiedRequests,omitzero"`
	// Sessions are commands, terminals and transfers of files inside pods.
	Sessions int64 `json:"sessions,omitzero"`
	// WorkerNames are the workers that one endpoint of the user knows.
	WorkerNames int64 `json:"workerNames,omitzero"`
}

// Default returns the limits of a server from a configuration. They are far above what stock
// clients do.
func Default() Limits {
	var l Limits
	for _, r := range rows {
		*r.of(&l) = r.Default
	}
	return l
}

// Or returns l with what def says where a field of l is 0, and without a limit where a field
// is negative. It is how a configuration with the limits l is read.
func (l Limits) Or(def Limits) Limits {
	for _, r := range rows {
		switch p := r.of(&l); {
		case *p == 0:
			*p = *r.of(&def)
		case *p < 0:
			*p = 0
		}
	}
	return l
}

// Of returns the limit of b in l; 0 is none.
func (l *Limits) Of(b Budget) int64 {
	if l == nil {
		return 0
	}
	return *rows[b].of(l)
}

// Check returns an [Error] if a user who has used so much of b may not use n more.
func (l *Limits) Check(b Budget, used, n int64) error {
	if limit := l.Of(b); limit > 0 && n > 0 && used+n > limit {
		return &Error{Budget: b, Limit: limit, Used: used, Asked: n}
	}
	return nil
}

package budget

// A Budget is one of the limits of a user.
type Budget uint8

// The budgets, as the fields of Limits with their names are.
const (
	Jobs Budget = iota
	QueuedJobs
	JobBytes
	Deliveries
	DeadLetters
	JobLogBytes
	Batches
	Schedules
	Pods
	Endpoints
	Templates
	Volumes
	Registries
	SSHKeys
	Keys
	IdempotencyKeys
	SecretBytes
	PodEnvBytes
	EndpointEnvBytes
	TemplateEnvBytes
	Webhooks
	RequestBytes
	ResponseBytes
	InputBytes
	OutputBytes
	Connections
	Streams
	ProxiedRequests
	Sessions
	WorkerNames
	budgets // number of budgets
)

// A Row describes a budget.
type Row struct {
	Budget  Budget
	Name    string // on the wire and in the configuration
	Unit    string // what is counted, in the plural
	Default int64
	// Frees says what makes room, as an advice to the user.
	Frees string
	// Wait is how many seconds a client that was refused should wait; 0: waiting does not help.
	Wait int
	// Process says that each process counts for itself, and that a restart forgets.
	Process bool

	of func(*Limits) *int64
}

const (
	kiB = 1 << 10
	miB = 1 << 20
	giB = 1 << 30
)

const freesJobs = "wait until jobs have ended and their retention is over, purge the queue, or delete jobs with actions"

var rows = [budgets]Row{
	Jobs:             {Name: "jobs", Unit: "kept jobs", Default: 1_000_000, Frees: freesJobs, Wait: 30, of: func(l *Limits) *int64 { return &l.Jobs }},
	QueuedJobs:       {Name: "queuedJobs", Unit: "queued jobs", Default: 500_000, Frees: "wait until workers have taken jobs, or purge the queue", Wait: 5, of: func(l *Limits) *int64 { return &l.QueuedJobs }},
	JobBytes:         {Name: "jobBytes", Unit: "bytes of kept jobs", Default: 10 * giB, Frees: freesJobs, Wait: 30, of: func(l *Limits) *int64 { return &l.JobBytes }},
	Deliveries:       {Name: "deliveries", Unit: "webhook deliveries", Default: 500_000, Frees: "wait until webhooks have been sent", Wait: 30, of: func(l *Limits) *int64 { return &l.Deliveries }},
	DeadLetters:      {Name: "deadLetters", Unit: "dead letters", Default: 100_000, Frees: "redrive or delete dead letters", of: func(l *Limits) *int64 { return &l.DeadLetters }},
	JobLogBytes:      {Name: "jobLogBytes", Unit: "bytes of lines that jobs have printed", Default: 256 * miB, Frees: "the oldest logs of jobs go by themselves", of: func(l *Limits) *int64 { return &l.JobLogBytes }},
	Batches:          {Name: "batches", Unit: "batches", Default: 10_000, Frees: "wait until batches have ended and their retention is over", Wait: 60, of: func(l *Limits) *int64 { return &l.Batches }},
	Schedules:        {Name: "schedules", Unit: "schedules", Default: 100, Frees: "delete schedules", of: func(l *Limits) *int64 { return &l.Schedules }},
	Pods:             {Name: "pods", Unit: "pods", Default: 1000, Frees: "terminate pods", of: func(l *Limits) *int64 { return &l.Pods }},
	Endpoints:        {Name: "endpoints", Unit: "endpoints", Default: 500, Frees: "delete endpoints", of: func(l *Limits) *int64 { return &l.Endpoints }},
	Templates:        {Name: "templates", Unit: "templates", Default: 1000, Frees: "delete templates", of: func(l *Limits) *int64 { return &l.Templates }},
	Volumes:          {Name: "volumes", Unit: "network volumes", Default: 500, Frees: "delete network volumes", of: func(l *Limits) *int64 { return &l.Volumes }},
	Registries:       {Name: "registries", Unit: "registry credentials", Default: 500, Frees: "delete registry credentials", of: func(l *Limits) *int64 { return &l.Registries }},
	SSHKeys:          {Name: "sshKeys", Unit: "SSH keys", Default: 100, Frees: "delete SSH keys", of: func(l *Limits) *int64 { return &l.SSHKeys }},
	Keys:             {Name: "keys", Unit: "API keys", Default: 500, Frees: "delete API keys", of: func(l *Limits) *int64 { return &l.Keys }},
	IdempotencyKeys:  {Name: "idempotencyKeys", Unit: "Idempotency-Keys of the last day", Default: 1_000_000, Frees: "wait, or send requests without an Idempotency-Key", Wait: 600, Process: true, of: func(l *Limits) *int64 { return &l.IdempotencyKeys }},
	SecretBytes:      {Name: "secretBytes", Unit: "bytes of secrets", Default: 64 * miB, Frees: "delete secrets", of: func(l *Limits) *int64 { return &l.SecretBytes }},
	PodEnvBytes:      {Name: "podEnvBytes", Unit: "bytes of names, images, arguments and environments of pods", Default: 8 * miB, Frees: "make them smaller, or have fewer pods", of: func(l *Limits) *int64 { return &l.PodEnvBytes }},
	EndpointEnvBytes: {Name: "endpointEnvBytes", Unit: "bytes of names, images, arguments and environments of endpoints", Default: 8 * miB, Frees: "make them smaller, or have fewer endpoints", of: func(l *Limits) *int64 { return &l.EndpointEnvBytes }},
	TemplateEnvBytes: {Name: "templateEnvBytes", Unit: "bytes of names, images, arguments and environments of templates", Default: 8 * miB, Frees: "make them smaller, or have fewer templates", of: func(l *Limits) *int64 { return &l.TemplateEnvBytes }},
	Webhooks:         {Name: "webhooks", Unit: "webhooks being sent", Default: 64, Frees: "the others wait for their turn", Process: true, of: func(l *Limits) *int64 { return &l.Webhooks }},
	RequestBytes:     {Name: "requestBytes", Unit: "bytes of requests in flight", Default: 64 * miB, Frees: "send fewer requests at once", Wait: 1, Process: true, of: func(l *Limits) *int64 { return &l.RequestBytes }},
	ResponseBytes:    {Name: "responseBytes", Unit: "bytes of answers in flight", Default: 64 * miB, Frees: "read answers faster, or ask for fewer at once", Wait: 1, Process: true, of: func(l *Limits) *int64 { return &l.ResponseBytes }},
	InputBytes:       {Name: "inputBytes", Unit: "bytes of inputs of jobs that workers in the server run", Default: 64 * miB, Frees: "the other jobs wait for their turn", Process: true, of: func(l *Limits) *int64 { return &l.InputBytes }},
	OutputBytes:      {Name: "outputBytes", Unit: "bytes of outputs that workers in the server have made and that are being stored", Default: 64 * miB, Frees: "the other jobs wait for their turn", Process: true, of: func(l *Limits) *int64 { return &l.OutputBytes }},
	Connections:      {Name: "connections", Unit: "requests that are held open", Default: 4096, Frees: "end waits, streams and WebSockets", Wait: 1, Process: true, of: func(l *Limits) *int64 { return &l.Connections }},
	Streams:          {Name: "streams", Unit: "event streams and followers of logs", Default: 512, Frees: "end some of them", Wait: 1, Process: true, of: func(l *Limits) *int64 { return &l.Streams }},
	ProxiedRequests:  {Name: "proxiedRequests", Unit: "requests to workers of load-balancing endpoints", Default: 1000, Frees: "wait for the answers of others", Wait: 1, Process: true, of: func(l *Limits) *int64 { return &l.ProxiedRequests }},
	Sessions:         {Name: "sessions", Unit: "commands, terminals and transfers of files inside pods", Default: 10, Frees: "end some of them", Wait: 1, Process: true, of: func(l *Limits) *int64 { return &l.Sessions }},
	WorkerNames:      {Name: "workerNames", Unit: "names of workers", Default: 4 * kiB, Frees: "let workers keep their names, or wait until those that are gone are forgotten", Wait: 30, Process: true, of: func(l *Limits) *int64 { return &l.WorkerNames }},
}

// All returns a row for each budget, in the order of the fields of Limits.
func All() []Row {
	all := rows
	for i := range all {
		all[i].Budget = Budget(i)
	}
	return all[:]
}

// Row returns the row of b.
func (b Budget) Row() Row {
	r := rows[b]
	r.Budget = b
	return r
}

// String returns the name of b.
func (b Budget) String() string { return rows[b].Name }

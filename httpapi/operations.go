package httpapi

import (
	"slices"
	"strings"
	"sync"

	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/ratelimit/budget"
)

// An Operation is one operation of the interface. The routes, the scopes, the limits and
// the test double are all made from one table of operations: see Operations. A path that is
// not in the table cannot be served.
type Operation struct {
	// Name is unique. It is the operationId in the published description, or a name of this
	// package if the description does not have the operation.
	Name string
	// API is the part of the interface that has the operation.
	API API
	// Area is the subject of the operation. It decides which service is needed.
	Area Area
	// Methods are its methods without HEAD. HEAD is served like GET, unless SideEffects.
	Methods []string
	// Path is a pattern: {x} stands for one segment, {x...} for the rest of the path.
	Path string
	// Scope is what a key must allow.
	Scope Scope
	// Limit is how requests are limited.
	Limit Limit
	// Rate is the limit that applies if Limit is LimitRate.
	Rate ratelimit.Operation
	// SideEffects says that a GET changes something, so HEAD is not served.
	SideEffects bool
	// Keyed says that the operation creates something, and that a request with an
	// Idempotency-Key can be repeated (docs/decisions.md 38).
	Keyed bool
	// Paged says that the list has pages: it takes limit and cursor, and answers the next page
	// in the header Link (docs/decisions.md 36).
	Paged bool
	// Added marks an addition of this service. The hosted service does not have it, and its
	// clients do not call it.
	Added bool
	// Owners says which owners an operator may name with the parameter owner.
	Owners Owners
	// NotOffered answers an operation that the published description has and this service
	// does not. It is empty where the operation is offered.
	NotOffered string
}

// An API is a part of the interface with its own form of keys and errors.
type API string

// The parts of the interface, and the functions that serve them. New serves all of them.
const (
	APIControl API = "control" // NewControl
	APIJobs    API = "jobs"    // NewJobs
	APIOpenAI  API = "openai"  // NewJobs; errors have OpenAI's form
	APIWorkers API = "workers" // the worker protocol: NewWorkers, and NewJobs
	APILegacy  API = "legacy"  // NewLegacy
	APIBalance API = "balance" // load-balancing endpoints: NewJobs
)

// An Area is the subject of operations.
type Area string

// The areas. An area is served if Services has its service.
const (
	AreaPods       Area = "pods"
	AreaVolumes    Area = "volumes"
	AreaTemplates  Area = "templates"
	AreaSSHKeys    Area = "ssh-keys"
	AreaKeys       Area = "keys"
	AreaBilling    Area = "billing"
	AreaClusters   Area = "clusters"
	AreaRegistries Area = "registries"
	AreaSecrets    Area = "secrets"
	AreaEndpoints  Area = "endpoints"
	AreaCatalog    Area = "catalog"
	AreaJobs       Area = "jobs"
	AreaSchedules  Area = "schedules"
	AreaBatches    Area = "batches"
	AreaWorkers    Area = "workers"
	AreaBalance    Area = "balance"
	AreaBudgets    Area = "budgets"
	AreaAdmin      Area = "admin"     // served with pods or jobs
	AreaInterface  Area = "interface" // always served
)

// ofJobs reports whether the operations of a have rates for each endpoint.
func (a Area) ofJobs() bool {
	return a == AreaJobs || a == AreaSchedules || a == AreaBatches || a == AreaBalance
}

// A Scope is what an operation needs: one of the scopes that ParseScope reads, where
// {endpoint} stands for the endpoint in the path, or ScopeNone, ScopeAny, ScopeWorker or
// ScopeAccount.
type Scope string

// The scopes of operations.
const (
	ScopeNone            Scope = "none"   // no key
	ScopeAny             Scope = "any"    // any valid key
	ScopeWorker          Scope = "worker" // the key of the worker in the path, or a user's key that covers its endpoint (docs/decisions.md 14)
	ScopePodsRead        Scope = "pods:read"
	ScopePodsWrite       Scope = "pods:write"
	ScopeRegistriesRead  Scope = "registries:read"
	ScopeRegistriesWrite Scope = "registries:write"
	ScopeSecretsRead     Scope = "secrets:read"
	ScopeSecretsWrite    Scope = "secrets:write"
	ScopeEndpointsRead   Scope = "endpoints:read"
	ScopeEndpointsWrite  Scope = "endpoints:write"
	ScopeEndpointRead    Scope = "endpoint:{endpoint}:read"
	ScopeEndpointRun     Scope = "endpoint:{endpoint}:run"
	ScopeAccount         Scope = "account"  // a key with "*" or operator
	ScopeOperator        Scope = "operator" // an operator's key; "*" does not include it
)

// A Limit is how the requests of a user to an operation are limited.
type Limit string

// The limits.
const (
	LimitWindows Limit = "windows" // counted by minute, hour and day, with all operations of this limit together
	LimitRate    Limit = "rate"    // by rate and concurrency, for each endpoint and operation
	LimitNone    Limit = "none"
)

// An operation is a row of the table: the exported part, and the handler.
type operation struct {
	Operation
	need Permission // what Scope means; not for ScopeAny and ScopeWorker
	do   func(*call) error
	dead bool // the record in the path is a dead letter
	own  bool // the key of the pod in the path may do it
	acts acts // which requests go to the audit log, in addition to refused ones
	// asked marks operations that clients repeat at once after an error.
	asked   bool
	stays   budget.Budget // what a request that may last long counts for; 0: it does not last
	largest int64         // bytes of a body; 0: as usual
	pages   pageForm      // how the body of a list speaks of pages
	turn    turn          // which answers of a user are written few at once
}

// A turn says how many answers of a user are written at once.
type turn uint8

const (
	noTurn        turn = iota
	turnOfLists        // an answer may be much larger than what its user sends, such as all environments of pods: few
	turnOfRecords      // an answer has one record: not too many
)

// A pageForm says how the body of a list speaks of pages. The public API has the member pagination; the
// header Link is of this service alone.
type pageForm string

const pagesInBody pageForm = "pagination"

// table returns all operations. The rows of an operation, what the OpenAPI document says of it, and its
// handler are in one file. A path with a literal segment comes before one with a placeholder in that
// position, because Find returns the first match: so the control API comes first.
//
// docs/architecture.md, "To add an operation", lists what a new one needs.
//
// The table is built once, because programs with many servers, such as tests, would notice
// the cost. It is never changed.
var table = sync.OnceValue(func() []operation {
	return slices.Concat(
		podOperations(),
		insideOperations(),
		volumeOperations(),
		globalVolumeOperations(),
		templateOperations(),
		sshKeyOperations(),
		keyOperations(),
		secretOperations(),
		limitOperations(),
		billingOperations(),
		clusterOperations(),
		registryOperations(),
		endpointOperations(),
		endpointWorkerOperations(),
		buildOperations(),
		endpointJobOperations(),
		queueSettingsOperations(),
		deliveryOperations(),
		catalogOperations(),
		auditOperations(),
		reloadOperations(),
		cordonOperations(),
		stateOperations(),
		userOperations(),
		descriptionOperations(),
		jobOperations(),
		streamOperations(),
		deadOperations(),
		jobLogOperations(),
		actionOperations(),
		eventOperations(),
		scheduleOperations(),
		batchOperations(),
		openAIOperations(),
		workerOperations(),
		balanceOperations(),
	)
})

// op returns a row. request is the methods, a blank, and the path.
func op(name, request string, s Scope, do func(*call) error, set ...func(*operation)) operation {
	methods, path, _ := strings.Cut(request, " ")
	o := operation{Operation: Operation{Name: name, Methods: strings.Split(methods, ","), Path: path, Scope: s}, do: do}
	o.need, _ = accounts.ParseScope(string(s)) // only * covers a scope that does not parse
	if s == ScopeAccount {
		o.need = Permission{Area: accounts.AreaAccount}
	}
	for _, f := range set {
		f(&o)
	}
	return o
}

// absent returns a row for a published operation that this service does not offer. Without
// the row, the answer would be the same as for a wrong path.
func absent(name, request string, s Scope, p *problem.Error) operation {
	o := op(name, request, s, func(*call) error { return p })
	o.NotOffered = p.Detail
	return o
}

func added(o *operation)        { o.Added = true }
func keyed(o *operation)        { o.Keyed = true }
func paged(o *operation)        { o.Paged = true }
func paginated(o *operation)    { o.Paged, o.pages = true, pagesInBody }
func marked(o *operation)       { o.pages = pagesInBody }
func sideEffects(o *operation)  { o.SideEffects = true }
func unlimited(o *operation)    { o.Limit = LimitNone }
func ofDeadLetter(o *operation) { o.dead = true }
func byOwnKey(o *operation)     { o.own = true }
func ofOperators(o *operation)  { o.acts = actsOfOperators }
func byOwner(o *operation)      { o.Owners = OwnersOne }
func byOwners(o *operation)     { o.Owners = OwnersAll }
func askedAgain(o *operation)   { o.asked = true }
func heavy(o *operation)        { o.turn = turnOfLists }
func record(o *operation)       { o.turn = turnOfRecords }

// bodyUpTo sets how many bytes a body may have.
func bodyUpTo(n int64) func(*operation) {
	return func(o *operation) { o.largest = n }
}

func staysOpen(b budget.Budget) func(*operation) {
	return func(o *operation) { o.stays = b }
}

func rate(r ratelimit.Operation) func(*operation) {
	return func(o *operation) { o.Limit, o.Rate = LimitRate, r }
}

// group sets what all its rows share.
func group(a API, about Area, rows ...operation) []operation {
	for i := range rows {
		rows[i].API, rows[i].Area = a, about
		if a == APIControl && rows[i].stays == 0 && rows[i].Limit == "" && rows[i].turn == noTurn {
			record(&rows[i])
		}
		if a.conventions().counted && rows[i].Limit == "" {
			rows[i].Limit = LimitWindows
			if !slices.Contains(rows[i].Methods, "GET") {
				rows[i].acts = actsOfAll
			}
		}
	}
	return rows
}

var noDelegations = problem.New(problem.NotFound, "Delegations of registries are not offered by this service.")

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
	acts acts // which requests go to the audit log, in addition to refused ones
	// asked marks operations that clients repeat at once after an error.
	asked bool
	stays budget.Budget // what a request that may last long counts for; 0: it does not last
	heavy bool          // an answer may be much larger than what its user sends: few at once
}

// table returns all operations. A path with a literal segment comes before one with a
// placeholder in that position, because Find returns the first match.
//
// A new operation needs its rule in a service of the domain, a handler in the file of its
// area here, a row below, a description for the served document (openapi_control.go,
// openapi_jobs.go), and a row in docs/interface.md. Tests require the last three, a request
// to the double, and refusals.
//
// The table is built once, because programs with many servers, such as tests, would notice
// the cost. It is never changed.
var table = sync.OnceValue(func() []operation {
	return slices.Concat(
		group(APIControl, AreaPods,
			op("listPods", "GET /v2/pods", ScopePodsRead, listPods, paged, byOwners),
			op("createPod", "POST /v2/pods", ScopePodsWrite, createPod, keyed),
			op("getPod", "GET /v2/pods/{id}", ScopePodsRead, getPod),
			op("updatePod", "PATCH /v2/pods/{id}", ScopePodsWrite, updatePod),
			op("deletePod", "DELETE /v2/pods/{id}", ScopePodsWrite, deletePod),
			op("podAction", "POST /v2/pods/{id}/action", ScopePodsWrite, actOnPod),
			op("getPodLogs", "GET /v2/pods/{id}/logs", ScopePodsRead, podLogs, staysOpen(budget.Streams)),
		),
		group(APILegacy, AreaPods,
			op("resetPod", "POST /v1/pods/{podId}/reset", ScopePodsWrite, resetPod),
		),
		group(APIControl, AreaVolumes,
			op("listNetworkVolumes", "GET /v2/network-volumes", ScopePodsRead, listVolumes, paged, byOwners),
			op("createNetworkVolume", "POST /v2/network-volumes", ScopePodsWrite, createVolume, keyed),
			op("getNetworkVolume", "GET /v2/network-volumes/{id}", ScopePodsRead, getVolume),
			op("updateNetworkVolume", "PATCH /v2/network-volumes/{id}", ScopePodsWrite, updateVolume),
			op("deleteNetworkVolume", "DELETE /v2/network-volumes/{id}", ScopePodsWrite, deleteVolume),
		),
		group(APIControl, AreaTemplates,
			op("listTemplates", "GET /v2/templates", ScopePodsRead, listTemplates, paged, byOwners),
			op("createTemplate", "POST /v2/templates", ScopePodsWrite, createTemplate, keyed),
			op("getTemplate", "GET /v2/templates/{id}", ScopePodsRead, getTemplate),
			op("updateTemplate", "PATCH /v2/templates/{id}", ScopePodsWrite, updateTemplate),
			op("deleteTemplate", "DELETE /v2/templates/{id}", ScopePodsWrite, deleteTemplate),
			op("listPublicTemplates", "GET /v2/catalog/templates", ScopeAny, listCatalogTemplates),
		),
		group(APIControl, AreaSSHKeys,
			op("getSshKeys", "GET /v2/account/ssh-keys", ScopePodsRead, listSSHKeys, byOwner),
			op("updateSshKeys", "PUT /v2/account/ssh-keys", ScopePodsWrite, replaceSSHKeys),
		),
		group(APIControl, AreaKeys,
			op("listKeys", "GET /v2/account/keys", ScopeAccount, listKeys, paged, byOwners, added),
			op("createKey", "POST /v2/account/keys", ScopeAccount, createKey, added, keyed),
			op("getKey", "GET /v2/account/keys/{id}", ScopeAccount, getKey, added),
			op("updateKey", "PATCH /v2/account/keys/{id}", ScopeAccount, updateKey, added),
			op("deleteKey", "DELETE /v2/account/keys/{id}", ScopeAccount, deleteKey, added),
			op("rotateKey", "POST /v2/account/keys/{id}/rotate", ScopeAccount, rotateKey, added),
		),
		group(APIControl, AreaBudgets,
			op("listLimits", "GET /v2/account/limits", ScopeAny, listLimits, byOwners, added),
		),
		group(APIControl, AreaBilling,
			op("listBilling", "GET /v2/billing", ScopePodsRead, allBilling, byOwner),
			op("listPodBilling", "GET /v2/billing/pods", ScopePodsRead, podBilling, byOwner),
			op("listServerlessBilling", "GET /v2/billing/serverless", ScopePodsRead, serverlessBilling, byOwner),
			op("listNetworkVolumeBilling", "GET /v2/billing/network-volumes", ScopePodsRead, volumeBilling, byOwner),
			absent("listEndpointBilling", "GET /v2/billing/endpoints", ScopePodsRead, noPublicEndpoints),
			absent("listClusterBilling", "GET /v2/billing/clusters", ScopePodsRead, noClusters),
		),
		group(APIControl, AreaClusters,
			absent("listClusters", "GET /v2/clusters", ScopePodsRead, noClusters),
			absent("createCluster", "POST /v2/clusters", ScopePodsWrite, noClusters),
			absent("getCluster", "GET /v2/clusters/{id}", ScopePodsRead, noClusters),
			absent("updateCluster", "PATCH /v2/clusters/{id}", ScopePodsWrite, noClusters),
			absent("deleteCluster", "DELETE /v2/clusters/{id}", ScopePodsWrite, noClusters),
			absent("listClusterPods", "GET /v2/clusters/{id}/pods", ScopePodsRead, noClusters),
		),
		group(APIControl, AreaRegistries,
			absent("listDelegations", "GET /v2/registries/delegations", ScopeRegistriesRead, noDelegations),
			absent("createDelegation", "POST /v2/registries/delegations", ScopeRegistriesWrite, noDelegations),
			absent("revokeDelegation", "DELETE /v2/registries/delegations/{id}", ScopeRegistriesWrite, noDelegations),
			op("listRegistries", "GET /v2/registries", ScopeRegistriesRead, listRegistries, paged, byOwners),
			op("createRegistry", "POST /v2/registries", ScopeRegistriesWrite, createRegistry, keyed),
			op("getRegistry", "GET /v2/registries/{id}", ScopeRegistriesRead, getRegistry),
			op("deleteRegistry", "DELETE /v2/registries/{id}", ScopeRegistriesWrite, deleteRegistry),
		),
		group(APIControl, AreaEndpoints,
			op("listEndpoints", "GET /v2/serverless", ScopeEndpointsRead, listEndpoints, paged, byOwners),
			op("createEndpoint", "POST /v2/serverless", ScopeEndpointsWrite, createEndpoint, keyed),
			op("getEndpoint", "GET /v2/serverless/{id}", ScopeEndpointsRead, getEndpoint),
			op("updateEndpoint", "PATCH /v2/serverless/{id}", ScopeEndpointsWrite, updateEndpoint),
			op("deleteEndpoint", "DELETE /v2/serverless/{id}", ScopeEndpointsWrite, deleteEndpoint),
			op("listEndpointReleases", "GET /v2/serverless/{id}/releases", ScopeEndpointsRead, listReleases),
			op("listEndpointWorkers", "GET /v2/serverless/{id}/workers", ScopeEndpointsRead, listWorkers),
			op("stopWorker", "DELETE /v2/serverless/{id}/workers/{workerId}", ScopeEndpointsWrite, stopWorker, added),
			op("getWorkerLogs", "GET /v2/serverless/{id}/workers/{workerId}/logs", ScopeEndpointsRead, workerLogs, staysOpen(budget.Streams)),
			op("listEndpointJobs", "GET /v2/serverless/{id}/jobs", ScopeEndpointsRead, listEndpointJobs, byOwners, added, heavy),
			op("getEndpointQueue", "GET /v2/serverless/{id}/queue", ScopeEndpointsRead, getEndpointQueue, added),
			op("updateEndpointQueue", "PATCH /v2/serverless/{id}/queue", ScopeEndpointsWrite, updateEndpointQueue, added),
			op("listDecisions", "GET /v2/serverless/{id}/decisions", ScopeEndpointsRead, listDecisions, added),
			op("listWebhooks", "GET /v2/serverless/{id}/deliveries", ScopeEndpointsRead, listWebhooks, byOwners, added, heavy),
			op("listDeliveries", "GET /v2/serverless/{id}/deliveries/{job}", ScopeEndpointsRead, listDeliveries, added),
			op("redeliver", "POST /v2/serverless/{id}/deliveries/{job}/redeliver", ScopeEndpointsWrite, redeliver, added),
		),
		group(APIControl, AreaCatalog,
			op("listGpuTypes", "GET /v2/catalog/gpus", ScopeAny, listGPUs),
			op("getGpuType", "GET /v2/catalog/gpus/{id}", ScopeAny, getGPU),
			op("listCpuTypes", "GET /v2/catalog/cpus", ScopeAny, listCPUs),
			op("getCpuType", "GET /v2/catalog/cpus/{id}", ScopeAny, getCPU),
			op("listDataCenters", "GET /v2/catalog/datacenters", ScopeAny, listDataCenters),
			op("getDataCenter", "GET /v2/catalog/datacenters/{id}", ScopeAny, getDataCenter),
		),
		group(APIControl, AreaAdmin,
			op("listAudit", "GET /v2/admin/audit", ScopeOperator, listAudit, added),
			op("reload", "POST /v2/admin/reload", ScopeOperator, reload, added),
			op("cordon", "POST /v2/admin/cordon", ScopeOperator, cordon, added),
			op("uncordon", "POST /v2/admin/uncordon", ScopeOperator, uncordon, added),
			op("drain", "POST /v2/admin/drain", ScopeOperator, drain, added),
			op("adminState", "GET /v2/admin/state", ScopeOperator, adminState, added),
			op("deleteUser", "DELETE /v2/admin/users/{name}", ScopeOperator, deleteUser, added),
			op("deleteUserJobs", "DELETE /v2/admin/users/{name}/jobs", ScopeOperator, deleteUserJobs, added),
		),
		group(APIControl, AreaInterface,
			op("openapi", "GET /v2/openapi.json", ScopeNone, openAPI, added, unlimited),
		),
		group(APIJobs, AreaJobs,
			op("run", "POST /v2/{endpoint}/run", ScopeEndpointRun, runJob, rate(ratelimit.Run), keyed),
			op("runSync", "POST /v2/{endpoint}/runsync", ScopeEndpointRun, runJobSync, rate(ratelimit.RunSync), keyed, staysOpen(budget.Connections)),
			op("status", "GET,POST /v2/{endpoint}/status/{job}", ScopeEndpointRead, jobStatus, rate(ratelimit.Status)),
			op("statusSync", "GET,POST /v2/{endpoint}/status-sync/{job}", ScopeEndpointRead, jobStatusSync, rate(ratelimit.Status), sideEffects, staysOpen(budget.Connections)),
			op("stream", "GET,POST /v2/{endpoint}/stream/{job}", ScopeEndpointRead, streamJob, rate(ratelimit.Stream), sideEffects, staysOpen(budget.Connections)),
			op("cancel", "POST /v2/{endpoint}/cancel/{job}", ScopeEndpointRun, cancelJob, rate(ratelimit.Cancel), ofOperators),
			op("retry", "POST /v2/{endpoint}/retry/{job}", ScopeEndpointRun, retryJob, unlimited, ofOperators),
			op("listAttempts", "GET /v2/{endpoint}/attempts/{job}", ScopeEndpointRead, listAttempts, rate(ratelimit.Status), added),
			op("listDeadLetters", "GET /v2/{endpoint}/dead", ScopeEndpointRead, listDeadLetters, byOwners, rate(ratelimit.Requests), added),
			op("getDeadLetter", "GET /v2/{endpoint}/dead/{job}", ScopeEndpointRead, getDeadLetter, ofDeadLetter, rate(ratelimit.Status), added),
			op("redriveDeadLetter", "POST /v2/{endpoint}/dead/{job}/redrive", ScopeEndpointRun, redriveDeadLetter, ofDeadLetter, rate(ratelimit.Run), added, ofOperators),
			op("deleteDeadLetter", "DELETE /v2/{endpoint}/dead/{job}", ScopeEndpointRun, deleteDeadLetter, ofDeadLetter, rate(ratelimit.Cancel), added, ofOperators),
			op("purgeQueue", "POST /v2/{endpoint}/purge-queue", ScopeEndpointRun, purgeQueue, byOwners, rate(ratelimit.PurgeQueue), ofOperators),
			op("actions", "POST /v2/{endpoint}/actions", ScopeEndpointRun, actOnJobs, byOwners, rate(ratelimit.Actions), ofOperators, added),
			op("health", "GET /v2/{endpoint}/health", ScopeAny, health, unlimited),
			op("requests", "GET /v2/{endpoint}/requests", ScopeEndpointRead, listRequests, byOwners, rate(ratelimit.Requests), heavy),
			op("jobEvents", "GET /v2/{endpoint}/events", ScopeEndpointRead, jobEvents, rate(ratelimit.Events), added, staysOpen(budget.Streams)),
			op("metrics", "GET /v2/{endpoint}/metrics", ScopeAny, workerMetrics, unlimited),
		),
		group(APIJobs, AreaSchedules,
			op("listSchedules", "GET /v2/{endpoint}/schedules", ScopeEndpointRead, listSchedules, byOwners, rate(ratelimit.Schedules), added),
			op("createSchedule", "POST /v2/{endpoint}/schedules", ScopeEndpointRun, createSchedule, rate(ratelimit.Schedules), ofOperators, added, keyed),
			op("getSchedule", "GET /v2/{endpoint}/schedules/{schedule}", ScopeEndpointRead, getSchedule, rate(ratelimit.Schedules), added),
			op("updateSchedule", "PATCH /v2/{endpoint}/schedules/{schedule}", ScopeEndpointRun, updateSchedule, rate(ratelimit.Schedules), ofOperators, added),
			op("deleteSchedule", "DELETE /v2/{endpoint}/schedules/{schedule}", ScopeEndpointRun, deleteSchedule, rate(ratelimit.Schedules), ofOperators, added),
			op("runSchedule", "POST /v2/{endpoint}/schedules/{schedule}/run", ScopeEndpointRun, runSchedule, rate(ratelimit.Run), ofOperators, added),
		),
		group(APIJobs, AreaBatches,
			op("listBatches", "GET /v2/{endpoint}/batch", ScopeEndpointRead, listBatches, byOwners, rate(ratelimit.Batches)),
			op("createBatch", "POST /v2/{endpoint}/batch", ScopeEndpointRun, createBatch, rate(ratelimit.Batches), ofOperators, keyed),
			op("getBatch", "GET /v2/{endpoint}/batch/{batch}", ScopeEndpointRead, getBatch, rate(ratelimit.Batches)),
			op("updateBatch", "PUT /v2/{endpoint}/batch/{batch}", ScopeEndpointRun, updateBatch, rate(ratelimit.Batches), ofOperators),
			op("addToBatch", "POST /v2/{endpoint}/batch/{batch}/requests", ScopeEndpointRun, addToBatch, rate(ratelimit.Batches), ofOperators),
			op("listBatchRequests", "GET /v2/{endpoint}/batch/{batch}/requests", ScopeEndpointRead, listBatchRequests, rate(ratelimit.Batches), heavy),
			op("deleteBatchRequest", "DELETE /v2/{endpoint}/batch/{batch}/requests/{request}", ScopeEndpointRun, deleteBatchRequest, rate(ratelimit.Batches), ofOperators),
			op("finalizeBatch", "POST /v2/{endpoint}/batch/{batch}/finalize", ScopeEndpointRun, finalizeBatch, rate(ratelimit.Batches), ofOperators),
			op("cancelBatch", "POST /v2/{endpoint}/batch/{batch}/cancel", ScopeEndpointRun, cancelBatch, rate(ratelimit.Batches), ofOperators),
		),
		group(APIOpenAI, AreaJobs,
			op("openai", "GET,POST /v2/{endpoint}/openai/{route...}", ScopeEndpointRun, proxyOpenAI, rate(ratelimit.OpenAI), sideEffects, staysOpen(budget.Connections)),
		),
		group(APIWorkers, AreaWorkers,
			op("jobTake", "GET /v2/{endpoint}/job-take/{worker}", ScopeWorker, takeJob, unlimited, sideEffects, askedAgain, staysOpen(budget.Connections)),
			op("jobTakeBatch", "GET /v2/{endpoint}/job-take-batch/{worker}", ScopeWorker, takeJobs, unlimited, sideEffects, askedAgain, staysOpen(budget.Connections)),
			op("jobStop", "GET /v2/{endpoint}/job-stop/{worker}", ScopeWorker, stopJobs, unlimited, sideEffects, staysOpen(budget.Connections)),
			op("ping", "GET /v2/{endpoint}/ping/{worker}", ScopeWorker, pingWorker, unlimited, sideEffects),
			op("jobDone", "POST /v2/{endpoint}/job-done/{worker}/{job}", ScopeWorker, jobDone, unlimited),
			op("jobStream", "POST /v2/{endpoint}/job-stream/{worker}/{job}", ScopeWorker, jobChunk, unlimited),
		),
		group(APIBalance, AreaBalance,
			op("proxy", "GET,POST,PUT,PATCH,DELETE,OPTIONS /lb/{endpoint}/{path...}", ScopeEndpointRun, proxyRequest, rate(ratelimit.Run), added, staysOpen(budget.ProxiedRequests)),
		),
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
func sideEffects(o *operation)  { o.SideEffects = true }
func unlimited(o *operation)    { o.Limit = LimitNone }
func ofDeadLetter(o *operation) { o.dead = true }
func ofOperators(o *operation)  { o.acts = actsOfOperators }
func byOwner(o *operation)      { o.Owners = OwnersOne }
func byOwners(o *operation)     { o.Owners = OwnersAll }
func askedAgain(o *operation)   { o.asked = true }
func heavy(o *operation)        { o.heavy = true }

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
		if a.conventions().counted && rows[i].Limit == "" {
			rows[i].Limit = LimitWindows
			if !slices.Contains(rows[i].Methods, "GET") {
				rows[i].acts = actsOfAll
			}
		}
	}
	return rows
}

var (
	noClusters        = problem.New(problem.NotFound, "Clusters are not offered by this service.")
	noDelegations     = problem.New(problem.NotFound, "Delegations of registries are not offered by this service.")
	noPublicEndpoints = problem.New(problem.NotFound, "Public endpoints are not offered by this service.")
)

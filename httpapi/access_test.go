package httpapi_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/serverless"
)

// The keys of the table. alice and bob have all scopes of users.
const (
	alicesAll = "key-of-alice-for-all"
	bobsAll   = "key-of-bob-for-all"
)

// An access is a request to an operation on a record of alice or a shared record, and its
// status for each of accessKeys. "in" is any status but 401 and 403; "-" skips the key.
type access struct{ name, request, body, wants string }

// accessKeys returns the keys of alice, bob, an operator, the worker w1 of the endpoint
// idle, bob with only the scope of work on idle, and no key.
func accessKeys(w *testAPI) [6]string {
	return [6]string{alicesAll, bobsAll, operatorFree, w.jobs.WorkerKey("idle", "w1"), bobsWork, ""}
}

const (
	own       = "in in in 401 403 401"    // on records of the caller
	alices200 = "200 404 200 401 403 401" // on a record of alice
	alicesIn  = "in 404 in 401 403 401"   // the same, whatever its status
	public    = "200 200 200 200 200 200" // for everybody
	anyKey    = "in in in 401 in 401"     // for any valid key
	acts      = "403 403 in 401 403 401"  // of operators only
	nothing   = "404 404 404 401 403 401" // not offered
	shared    = "403 403 in 401 403 401"  // of a shared endpoint, for operators
	theirJob  = "in 404 in 401 403 401"   // a job of alice on a shared endpoint
	privately = "in 404 in 403 403 401"   // worker protocol of a private endpoint
	publicly  = "403 403 in in in 401"    // worker protocol of a shared endpoint, as worker w1
	locally   = "403 403 403 403 403 401" // as a worker of the server's process
	noBodys   = "403 403 403 401 403 401" // a change of a shared endpoint
	ofEndpt   = "in 404 in 401 404 401"   // any key may read this of its user's endpoints
)

var accessTable = slices.Concat(recordAccess, endpointAccess, jobAccess, workAccess)

var recordAccess = []access{
	{"openapi", "GET /v2/openapi.json", "", public},
	{"listPods", "GET /v2/pods", "", own}, {"createPod", "POST /v2/pods", "{}", own},
	{"getPod", "GET {pod}", "", alices200}, {"updatePod", "PATCH {pod}", `{"name":"x"}`, alices200}, {"deletePod", "DELETE {pod}", "", alicesIn},
	{"podAction", "POST {pod}/action", `{"action":"terminate"}`, alicesIn}, {"getPodLogs", "GET {pod}/logs", "", alices200},
	{"whyPod", "GET {pod}/why", "", alices200}, {"getPodOptions", "GET {pod}/options", "", alices200},
	{"execPod", "POST {pod}/exec", `{"command":["true"]}`, alicesIn}, {"podTerminal", "GET {pod}/terminal", "", alicesIn},
	{"getPodFiles", "GET {pod}/files?path=/a", "", alicesIn}, {"putPodFiles", "PUT {pod}/files?path=/a", "", alicesIn},
	{"resetPod", "POST {reset}", "", alicesIn},
	{"listNetworkVolumes", "GET /v2/network-volumes", "", own}, {"createNetworkVolume", "POST /v2/network-volumes", "{}", own},
	{"getNetworkVolume", "GET {volume}", "", alices200}, {"updateNetworkVolume", "PATCH {volume}", `{"name":"x"}`, alices200}, {"deleteNetworkVolume", "DELETE {volume}", "", alicesIn},
	{"listGlobalVolumes", "GET /v2/global-volumes", "", own}, {"createGlobalVolume", "POST /v2/global-volumes", "", own},
	{"getGlobalVolume", "GET /v2/global-volumes/x", "", nothing}, {"updateGlobalVolume", "PATCH /v2/global-volumes/x", "", nothing}, {"deleteGlobalVolume", "DELETE /v2/global-volumes/x", "", nothing},
	{"listTemplates", "GET /v2/templates", "", own}, {"createTemplate", "POST /v2/templates", "{}", own},
	{"getTemplate", "GET {template}", "", alices200}, {"updateTemplate", "PATCH {template}", `{"name":"x"}`, alices200}, {"deleteTemplate", "DELETE {template}", "", alicesIn},
	{"listPublicTemplates", "GET /v2/catalog/templates?source=community", "", anyKey},
	{"getSshKeys", "GET /v2/account/ssh-keys", "", own}, {"updateSshKeys", "PUT /v2/account/ssh-keys", `{"keys":[]}`, own},
	{"listSecrets", "GET /v2/account/secrets", "", own}, {"createSecret", "POST /v2/account/secrets", "{}", own},
	{"getSecret", "GET {secret}", "", alices200}, {"updateSecret", "PATCH {secret}", `{"value":"x"}`, alices200}, {"deleteSecret", "DELETE {secret}", "", alicesIn},
	{"listLimits", "GET /v2/account/limits", "", anyKey},
	{"listKeys", "GET /v2/account/keys", "", own}, {"createKey", "POST /v2/account/keys", "{}", own},
	{"getKey", "GET {key}", "", alices200}, {"updateKey", "PATCH {key}", "{}", alicesIn}, {"deleteKey", "DELETE {key}", "", alicesIn}, {"rotateKey", "POST {key}/rotate", "{}", alicesIn},
	{"listBilling", "GET /v2/billing", "", own}, {"listPodBilling", "GET /v2/billing/pods", "", own},
	{"listServerlessBilling", "GET /v2/billing/serverless", "", own}, {"listNetworkVolumeBilling", "GET /v2/billing/network-volumes", "", own},
	{"listEndpointBilling", "GET /v2/billing/endpoints", "", own}, {"listClusterBilling", "GET /v2/billing/clusters", "", own},
	{"listClusters", "GET /v2/clusters", "", own}, {"createCluster", "POST /v2/clusters", "{}", own}, {"getCluster", "GET {cluster}", "", alices200},
	{"updateCluster", "PATCH {cluster}", `{"name":"x"}`, alices200}, {"deleteCluster", "DELETE {cluster}", "", alicesIn}, {"listClusterPods", "GET {cluster}/pods", "", alices200},
	{"listDelegations", "GET /v2/registries/delegations", "", nothing}, {"createDelegation", "POST /v2/registries/delegations", "", nothing},
	{"revokeDelegation", "DELETE /v2/registries/delegations/x", "", nothing},
	{"listRegistries", "GET /v2/registries", "", own}, {"createRegistry", "POST /v2/registries", "{}", own},
	{"getRegistry", "GET {registry}", "", alices200}, {"deleteRegistry", "DELETE {registry}", "", alicesIn},
	{"listGpuTypes", "GET /v2/catalog/gpus", "", anyKey}, {"getGpuType", "GET /v2/catalog/gpus/x", "", anyKey},
	{"listCpuTypes", "GET /v2/catalog/cpus", "", anyKey}, {"getCpuType", "GET /v2/catalog/cpus/x", "", anyKey},
	{"listDataCenters", "GET /v2/catalog/datacenters", "", anyKey}, {"getDataCenter", "GET /v2/catalog/datacenters/x", "", anyKey},
	{"listAudit", "GET /v2/admin/audit", "", acts}, {"reload", "POST /v2/admin/reload", "", acts}, {"cordon", "POST /v2/admin/cordon", "{}", acts},
	{"uncordon", "POST /v2/admin/uncordon", "{}", acts}, {"drain", "POST /v2/admin/drain", "{}", acts}, {"adminState", "GET /v2/admin/state", "", acts},
	{"deleteUser", "DELETE /v2/admin/users/alice", "", acts}, {"deleteUserJobs", "DELETE /v2/admin/users/alice/jobs", "", acts},
}

var endpointAccess = []access{
	{"listEndpoints", "GET /v2/serverless", "", own}, {"createEndpoint", "POST /v2/serverless", "{}", own},
	{"getEndpoint", "GET {endpoint}", "", alices200}, {"getEndpoint", "GET /v2/serverless/idle", "", "200 200 200 401 403 401"},
	{"updateEndpoint", "PATCH {endpoint}", `{"name":"x"}`, alices200}, {"updateEndpoint", "PATCH /v2/serverless/idle", `{"name":"x"}`, noBodys},
	{"deleteEndpoint", "DELETE {endpoint}", "", alicesIn}, {"deleteEndpoint", "DELETE /v2/serverless/idle", "", noBodys},
	{"listEndpointReleases", "GET {endpoint}/releases", "", alices200}, {"listEndpointReleases", "GET /v2/serverless/idle/releases", "", "200 200 200 401 403 401"},
	{"listEndpointBuilds", "GET {endpoint}/builds", "", alices200}, {"listEndpointBuilds", "GET /v2/serverless/idle/builds", "", "200 200 200 401 403 401"},
	{"getEndpointBuild", "GET {endpoint}/builds/x", "", "404 404 404 401 403 401"}, {"getEndpointBuild", "GET /v2/serverless/idle/builds/x", "", "404 404 404 401 403 401"},
	{"listEndpointWorkers", "GET {endpoint}/workers", "", alices200}, {"listEndpointWorkers", "GET /v2/serverless/idle/workers", "", shared},
	{"stopWorker", "DELETE {endpoint}/workers/w1", "", alicesIn}, {"stopWorker", "DELETE /v2/serverless/idle/workers/w1", "", shared},
	{"getWorkerLogs", "GET {endpoint}/workers/w1/logs", "", alicesIn}, {"getWorkerLogs", "GET /v2/serverless/idle/workers/w1/logs", "", shared},
	{"listEndpointJobs", "GET {endpoint}/jobs", "", alices200}, {"listEndpointJobs", "GET /v2/serverless/idle/jobs", "", own},
	{"getEndpointQueue", "GET {endpoint}/queue", "", alices200}, {"getEndpointQueue", "GET /v2/serverless/idle/queue", "", shared},
	{"updateEndpointQueue", "PATCH {endpoint}/queue", "{}", alices200}, {"updateEndpointQueue", "PATCH /v2/serverless/idle/queue", "{}", shared},
	{"listDecisions", "GET {endpoint}/decisions", "", alices200}, {"listDecisions", "GET /v2/serverless/idle/decisions", "", shared},
	{"listDecisions", "GET /v2/serverless/idle/decisions?jobId={job}", "", theirJob},
	{"listWebhooks", "GET /v2/serverless/idle/deliveries", "", own}, {"listWebhooks", "GET {endpoint}/deliveries", "", alices200},
	{"listDeliveries", "GET /v2/serverless/idle/deliveries/{job}", "", alices200}, {"listDeliveries", "GET {endpoint}/deliveries/{privateJob}", "", alices200},
	{"redeliver", "POST /v2/serverless/idle/deliveries/{job}/redeliver", "", theirJob}, {"redeliver", "POST {endpoint}/deliveries/{privateJob}/redeliver", "", alicesIn},
}

var jobAccess = []access{
	{"run", "POST {private}/run", `{"input":{}}`, alices200}, {"run", "POST /v2/idle/run", `{"input":{}}`, own},
	{"runSync", "POST {private}/runsync", `{"input":{}}`, alices200}, {"runSync", "POST /v2/echo/runsync", `{"input":{}}`, own},
	{"status", "GET {private}/status/{privateJob}", "", alices200}, {"status", "GET /v2/idle/status/{job}", "", alices200},
	{"statusSync", "GET {private}/status-sync/{privateJob}", "", alices200}, {"statusSync", "GET /v2/idle/status-sync/{job}", "", alices200},
	{"stream", "GET {private}/stream/{privateJob}", "", alices200}, {"stream", "GET /v2/idle/stream/{job}", "", alices200},
	{"cancel", "POST {private}/cancel/{privateJob}", "", alices200}, {"cancel", "POST /v2/idle/cancel/{job}", "", alices200},
	{"retry", "POST {private}/retry/{privateJob}", "", alicesIn}, {"retry", "POST /v2/idle/retry/{job}", "", theirJob},
	{"listAttempts", "GET {private}/attempts/{privateJob}", "", alices200}, {"listAttempts", "GET /v2/idle/attempts/{job}", "", alices200},
	{"jobLog", "GET {private}/log/{privateJob}", "", alices200}, {"jobLog", "GET /v2/idle/log/{job}", "", alices200},
	{"listDeadLetters", "GET {private}/dead", "", alices200}, {"listDeadLetters", "GET /v2/idle/dead", "", own},
	{"getDeadLetter", "GET {private}/dead/{privateJob}", "", theirJob}, {"getDeadLetter", "GET /v2/idle/dead/{job}", "", theirJob},
	{"redriveDeadLetter", "POST {private}/dead/{privateJob}/redrive", "", theirJob}, {"redriveDeadLetter", "POST /v2/idle/dead/{job}/redrive", "", theirJob},
	{"deleteDeadLetter", "DELETE {private}/dead/{privateJob}", "", theirJob}, {"deleteDeadLetter", "DELETE /v2/idle/dead/{job}", "", theirJob},
	{"purgeQueue", "POST {private}/purge-queue", "", alices200}, {"purgeQueue", "POST /v2/idle/purge-queue", "", own},
	{"actions", "POST {private}/actions", `{"action":"cancel","all":true}`, alices200}, {"actions", "POST /v2/idle/actions", `{"action":"cancel","all":true}`, own},
	{"requests", "GET {private}/requests?full=true", "", alices200}, {"requests", "GET /v2/idle/requests?full=true", "", own},
	{"jobEvents", "HEAD {private}/events", "", alices200}, {"jobEvents", "HEAD /v2/idle/events", "", own},
	{"listBatches", "GET {private}/batch", "", alices200}, {"listBatches", "GET /v2/idle/batch", "", own},
	{"createBatch", "POST {private}/batch", "[]", alices200}, {"createBatch", "POST /v2/idle/batch", "[]", own},
	{"getBatch", "GET {private}/batch/{privateBatch}", "", alices200}, {"getBatch", "GET /v2/idle/batch/{batch}", "", alices200},
	{"updateBatch", "PUT {private}/batch/{privateBatch}", `{"name":"x"}`, alices200}, {"updateBatch", "PUT /v2/idle/batch/{batch}", `{"name":"x"}`, alices200},
	{"addToBatch", "POST {private}/batch/{privateBatch}/requests", `{"requests":[]}`, alices200}, {"addToBatch", "POST /v2/idle/batch/{batch}/requests", `{"requests":[]}`, alices200},
	{"listBatchRequests", "GET {private}/batch/{privateBatch}/requests", "", alices200}, {"listBatchRequests", "GET /v2/idle/batch/{batch}/requests", "", alices200},
	{"deleteBatchRequest", "DELETE {private}/batch/{privateBatch}/requests/{privateBatch}-0", "", alicesIn}, {"deleteBatchRequest", "DELETE /v2/idle/batch/{batch}/requests/{batch}-0", "", alicesIn},
	{"finalizeBatch", "POST {private}/batch/{privateBatch}/finalize", "", alices200}, {"finalizeBatch", "POST /v2/idle/batch/{batch}/finalize", "", alices200},
	{"cancelBatch", "POST {private}/batch/{privateBatch}/cancel", "", alices200}, {"cancelBatch", "POST /v2/idle/batch/{batch}/cancel", "", alices200},
	{"listSchedules", "GET {private}/schedules", "", alices200}, {"listSchedules", "GET /v2/idle/schedules", "", own},
	{"createSchedule", "POST {private}/schedules", "{}", alicesIn}, {"createSchedule", "POST /v2/idle/schedules", "{}", own},
	{"getSchedule", "GET {private}/schedules/{privateSchedule}", "", alices200}, {"getSchedule", "GET /v2/idle/schedules/{schedule}", "", alices200},
	{"updateSchedule", "PATCH {private}/schedules/{privateSchedule}", `{"enabled":false}`, alices200}, {"updateSchedule", "PATCH /v2/idle/schedules/{schedule}", `{"enabled":false}`, alices200},
	{"deleteSchedule", "DELETE {private}/schedules/{privateSchedule}", "", alicesIn}, {"deleteSchedule", "DELETE /v2/idle/schedules/{schedule}", "", alicesIn},
	{"runSchedule", "POST {private}/schedules/{privateSchedule}/run", "", alices200}, {"runSchedule", "POST /v2/idle/schedules/{schedule}/run", "", alices200},
	{"health", "GET {private}/health", "", ofEndpt}, {"health", "GET /v2/idle/health", "", anyKey},
	{"metrics", "GET {private}/metrics", "", ofEndpt}, {"metrics", "GET /v2/idle/metrics", "", anyKey},
	{"proxy", "POST {balanced}/x", "", alicesIn}, {"proxy", "GET /lb/direct/x", "", own},
	{"openai", "POST {private}/openai/v1/models", "{}", "- 404 - 401 403 401"}, {"openai", "POST /v2/echo/openai/v1/models", "{}", own},
}

// workAccess has the worker protocol for three workers.
var workAccess = slices.Concat(
	workOf("{private}", "w1", privately), workOf("/v2/idle", "w1", publicly), workOf("/v2/idle", "local-idle", locally))

func workOf(endpoint, id, wants string) []access {
	return []access{
		{"jobTake", "GET " + endpoint + "/job-take/" + id, "", wants},
		{"jobTakeBatch", "GET " + endpoint + "/job-take-batch/" + id, "", wants},
		{"jobStop", "GET " + endpoint + "/job-stop/" + id, "", wants},
		{"ping", "GET " + endpoint + "/ping/" + id, "", wants},
		{"jobDone", "POST " + endpoint + "/job-done/" + id + "/{job}", `{"output":1}`, wants},
		{"jobStream", "POST " + endpoint + "/job-stream/" + id + "/{job}", `{"output":1}`, wants},
	}
}

func TestEveryOperationForEveryKindOfKey(t *testing.T) {
	rows := map[string]int{}
	for _, row := range accessTable {
		rows[row.name]++
		if httpapi.Operations().Named(row.name) == nil {
			t.Errorf("there is no operation %s", row.name)
		}
		// An operation may delete its record, so the owner and the operator use separate
		// worlds.
		for _, skip := range []int{0, 2} {
			withEndpoints(t, offersBalancing, func(w *testAPI) { row.check(w, skip) })
		}
	}
	for _, o := range httpapi.Operations() {
		if rows[o.Name] == 0 {
			t.Errorf("the table of access has no row for %s", o.Name)
		}
		onEndpoint := strings.Contains(o.Path, "{endpoint}") || strings.HasPrefix(o.Path, "/v2/serverless/{id}")
		if onEndpoint && rows[o.Name] < 2 {
			t.Errorf("the table of access has no row for %s on a private and on a shared endpoint", o.Name)
		}
	}
}

// check makes the request of a row with every key but one. Keys that are refused come
// first.
func (row *access) check(w *testAPI, skip int) {
	w.t.Helper()
	names, secrets := accessNames(w)
	method, path, _ := strings.Cut(names.Replace(row.request), " ")
	wants := strings.Fields(row.wants)
	for _, i := range []int{5, 4, 3, 1, 0, 2} {
		if i == skip || wants[i] == "-" {
			continue
		}
		key := accessKeys(w)[i]
		a := row.ask(w, method, path, key)
		in := a.status != 401 && a.status != 403
		if ok := wants[i] == strconv.Itoa(a.status) || wants[i] == "in" && in; !ok {
			w.t.Errorf("%s with key %d %q = %d %s, want %s", row.request, i, key, a.status, short(a.body), wants[i])
		}
		if i == 0 || i == 2 {
			continue
		}
		if owner := a.header.Get("Podyard-Owner"); owner != "" {
			w.t.Errorf("%s with key %d names the owner %q", row.request, i, owner)
		}
		for _, secret := range secrets {
			if a.status == 200 && strings.Contains(a.body, secret) && key != bobsWork && i != 3 {
				w.t.Errorf("%s with key %d shows %s of alice: %s", row.request, i, secret, short(a.body))
			}
		}
	}
}

// balancedEndpoint is the body of a request for a load-balancing endpoint.
const balancedEndpoint = `{"name":"n","type":"LOAD_BALANCER","image":"i","cpu":[{"id":"cpu5c","vcpuCount":2}],"scaling":{"type":"REQUEST_COUNT","requestCount":1}}`

// offersBalancing is for withEndpoints.
func offersBalancing(o *serverless.Options, _ *httpapi.Options) { o.Prober = httpapi.NewProber() }

func (row *access) ask(w *testAPI, method, path, key string) answer {
	w.t.Helper()
	if strings.HasSuffix(path, "/logs") {
		return w.listen(time.Second, path, "Authorization: Bearer "+key)
	}
	if key == "" {
		return w.call(method, path, row.body, "Authorization:")
	}
	return w.call(method, path, row.body, "Authorization: Bearer "+key)
}

// accessNames returns the names of alice's records for paths, and the texts in them that
// nobody else may read.
func accessNames(w *testAPI) (names *strings.Replacer, secrets []string) {
	made := owned(w)
	if err := w.jobs.EnsureBalanced(w.t.Context(), "direct"); err != nil {
		w.t.Fatal(err)
	}
	balanced := w.want(201, "POST", "/v2/serverless", balancedEndpoint, as(alicesAll)).field("id")
	id := func(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
	key := w.want(201, "POST", "/v2/account/keys", `{"scopes":["pods:read"]}`, as(alicesAll)).field("id")
	secret := w.want(201, "POST", "/v2/account/secrets", `{"name":"of_alice","value":"v"}`, as(alicesAll)).field("id")
	schedule := func(endpoint string) string {
		return w.want(201, "POST", endpoint+"/schedules", `{"cron":"* * * * *","run":{"input":{"of":"alice"}}}`, as(alicesAll)).field("id")
	}
	private, onShared := schedule("/v2/"+id(made["endpoint"])), schedule("/v2/idle")
	batch := func(endpoint string) string {
		return w.want(200, "POST", endpoint+"/batch", `[{"input":{"of":"alice"}}]`, as(alicesAll)).field("id")
	}
	privateBatch, sharedBatch := batch("/v2/"+id(made["endpoint"])), batch("/v2/idle")
	for _, kind := range []string{"pod", "cluster", "template", "registry", "endpoint", "job", "private"} {
		secrets = append(secrets, id(made[kind]))
	}
	secrets = append(secrets, secret, "of_alice", privateBatch, sharedBatch, private, onShared, key, "alices", `"of":"alice"`, "vol1")
	return strings.NewReplacer(
		"{pod}", made["pod"], "{reset}", "/v1/pods/"+id(made["pod"])+"/reset", "{volume}", made["volume"], "{cluster}", made["cluster"], "{template}", made["template"],
		"{registry}", made["registry"], "{endpoint}", made["endpoint"], "{key}", "/v2/account/keys/"+key, "{secret}", "/v2/account/secrets/"+secret, "{job}", id(made["job"]),
		"{balanced}", "/lb/"+balanced, "{private}", "/v2/"+id(made["endpoint"]), "{privateJob}", id(made["private"]),
		"{batch}", sharedBatch, "{privateBatch}", privateBatch,
		"{schedule}", onShared, "{privateSchedule}", private,
	), secrets
}

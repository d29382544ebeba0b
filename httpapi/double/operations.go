package double

import (
	"net/http"
	"slices"
	"strings"
)

// An Operation is one operation of the interface. Faults, journals and matches call it by
// its name.
type Operation struct {
	Name    string   // as in the published description; those of jobs have names of ours
	Methods []string // HEAD goes with GET
	Path    string   // {x} is one segment, {x...} the rest
	Area    string   // Absent, or what it is about: pods, volumes, jobs, workers
}

var (
	get     = []string{http.MethodGet}
	post    = []string{http.MethodPost}
	patch   = []string{http.MethodPatch}
	del     = []string{http.MethodDelete}
	getPost = []string{http.MethodGet, http.MethodPost}
)

// Absent is the area of operations that the published description has and the product
// refuses: there are no clusters.
const Absent = "absent"

// table is what the handlers serve. Paths with a name come before those with a
// placeholder in its place.
var table = [...]Operation{
	{"listPods", get, "/v2/pods", "pods"},
	{"createPod", post, "/v2/pods", "pods"},
	{"getPod", get, "/v2/pods/{id}", "pods"},
	{"updatePod", patch, "/v2/pods/{id}", "pods"},
	{"deletePod", del, "/v2/pods/{id}", "pods"},
	{"podAction", post, "/v2/pods/{id}/action", "pods"},
	{"getPodLogs", get, "/v2/pods/{id}/logs", "pods"},
	{"resetPod", post, "/v1/pods/{podId}/reset", "pods"},

	{"listNetworkVolumes", get, "/v2/network-volumes", "volumes"},
	{"createNetworkVolume", post, "/v2/network-volumes", "volumes"},
	{"getNetworkVolume", get, "/v2/network-volumes/{id}", "volumes"},
	{"updateNetworkVolume", patch, "/v2/network-volumes/{id}", "volumes"},
	{"deleteNetworkVolume", del, "/v2/network-volumes/{id}", "volumes"},

	{"listTemplates", get, "/v2/templates", "templates"},
	{"createTemplate", post, "/v2/templates", "templates"},
	{"getTemplate", get, "/v2/templates/{id}", "templates"},
	{"updateTemplate", patch, "/v2/templates/{id}", "templates"},
	{"deleteTemplate", del, "/v2/templates/{id}", "templates"},
	{"listPublicTemplates", get, "/v2/catalog/templates", "templates"},

	{"getSshKeys", get, "/v2/account/ssh-keys", "account"},
	{"updateSshKeys", []string{http.MethodPut}, "/v2/account/ssh-keys", "account"},

	{"listBilling", get, "/v2/billing", "billing"},
	{"listPodBilling", get, "/v2/billing/pods", "billing"},
	{"listServerlessBilling", get, "/v2/billing/serverless", "billing"},
	{"listNetworkVolumeBilling", get, "/v2/billing/network-volumes", "billing"},

	{"listDelegations", get, "/v2/registries/delegations", Absent},
	{"createDelegation", post, "/v2/registries/delegations", Absent},
	{"revokeDelegation", del, "/v2/registries/delegations/{id}", Absent},
	{"listClusters", get, "/v2/clusters", Absent},
	{"createCluster", post, "/v2/clusters", Absent},
	{"getCluster", get, "/v2/clusters/{id}", Absent},
	{"updateCluster", patch, "/v2/clusters/{id}", Absent},
	{"deleteCluster", del, "/v2/clusters/{id}", Absent},
	{"listClusterPods", get, "/v2/clusters/{id}/pods", Absent},
	{"listEndpointBilling", get, "/v2/billing/endpoints", Absent},
	{"listClusterBilling", get, "/v2/billing/clusters", Absent},

	{"listRegistries", get, "/v2/registries", "registries"},
	{"createRegistry", post, "/v2/registries", "registries"},
	{"getRegistry", get, "/v2/registries/{id}", "registries"},
	{"deleteRegistry", del, "/v2/registries/{id}", "registries"},

	{"listEndpoints", get, "/v2/serverless", "endpoints"},
	{"createEndpoint", post, "/v2/serverless", "endpoints"},
	{"getEndpoint", get, "/v2/serverless/{id}", "endpoints"},
	{"updateEndpoint", patch, "/v2/serverless/{id}", "endpoints"},
	{"deleteEndpoint", del, "/v2/serverless/{id}", "endpoints"},
	{"listEndpointReleases", get, "/v2/serverless/{id}/releases", "endpoints"},
	{"listEndpointWorkers", get, "/v2/serverless/{id}/workers", "endpoints"},
	{"getWorkerLogs", get, "/v2/serverless/{id}/workers/{worker}/logs", "endpoints"},
	{"listDecisions", get, "/v2/serverless/{id}/decisions", "endpoints"},
	{"listDeliveries", get, "/v2/serverless/{id}/deliveries/{job}", "endpoints"},
	{"redeliver", post, "/v2/serverless/{id}/deliveries/{job}/redeliver", "endpoints"},

	{"listGpuTypes", get, "/v2/catalog/gpus", "catalog"},
	{"getGpuType", get, "/v2/catalog/gpus/{id}", "catalog"},
	{"listCpuTypes", get, "/v2/catalog/cpus", "catalog"},
	{"getCpuType", get, "/v2/catalog/cpus/{id}", "catalog"},
	{"listDataCenters", get, "/v2/catalog/datacenters", "catalog"},
	{"getDataCenter", get, "/v2/catalog/datacenters/{id}", "catalog"},

	{"run", post, "/v2/{endpoint}/run", "jobs"},
	{"runSync", post, "/v2/{endpoint}/runsync", "jobs"},
	{"status", getPost, "/v2/{endpoint}/status/{job}", "jobs"},
	{"statusSync", getPost, "/v2/{endpoint}/status-sync/{job}", "jobs"},
	{"stream", getPost, "/v2/{endpoint}/stream/{job}", "jobs"},
	{"cancel", post, "/v2/{endpoint}/cancel/{job}", "jobs"},
	{"retry", post, "/v2/{endpoint}/retry/{job}", "jobs"},
	{"purgeQueue", post, "/v2/{endpoint}/purge-queue", "jobs"},
	{"health", get, "/v2/{endpoint}/health", "jobs"},
	{"requests", get, "/v2/{endpoint}/requests", "jobs"},
	{"metrics", get, "/v2/{endpoint}/metrics", "jobs"},
	{"openai", getPost, "/v2/{endpoint}/openai/{route...}", "jobs"},

	{"jobTake", get, "/v2/{endpoint}/job-take/{worker}", "workers"},
	{"jobTakeBatch", get, "/v2/{endpoint}/job-take-batch/{worker}", "workers"},
	{"jobStop", get, "/v2/{endpoint}/job-stop/{worker}", "workers"},
	{"ping", get, "/v2/{endpoint}/ping/{worker}", "workers"},
	{"jobDone", post, "/v2/{endpoint}/job-done/{worker}/{job}", "workers"},
	{"jobStream", post, "/v2/{endpoint}/job-stream/{worker}/{job}", "workers"},
}

// Operations are all that the double answers, because the product does. The slice is the
// caller's.
func Operations() []Operation {
	list := make([]Operation, len(table))
	for i, o := range table {
		list[i] = o
		list[i].Methods = slices.Clone(o.Methods)
	}
	return list
}

// operationOf finds the operation of a request, nil if there is none, and what its path
// names.
func operationOf(method, path string) (*Operation, map[string]string) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for i := range table {
		o := &table[i]
		if !slices.Contains(o.Methods, method) {
			continue
		}
		if names, ok := matchPath(o.Path, path); ok {
			return o, names
		}
	}
	return nil, nil
}

// matchPath compares segment by segment.
func matchPath(pattern, path string) (map[string]string, bool) {
	var names map[string]string
	for {
		p, restP, moreP := strings.Cut(strings.TrimPrefix(pattern, "/"), "/")
		s, rest, more := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		if name, ok := strings.CutPrefix(p, "{"); ok {
			if names == nil {
				names = map[string]string{}
			}
			if name, ok := strings.CutSuffix(name, "...}"); ok {
				names[name] = strings.TrimPrefix(path, "/")
				return names, true
			}
			if s == "" {
				return nil, false
			}
			names[strings.TrimSuffix(name, "}")] = s
		} else if p != s {
			return nil, false
		}
		if !moreP || !more {
			return names, moreP == more
		}
		pattern, path = restP, rest
	}
}

func isOperation(name string) bool {
	return slices.ContainsFunc(table[:], func(o Operation) bool { return o.Name == name })
}

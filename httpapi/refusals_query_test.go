package httpapi_test

import (
	"testing"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
)

func TestParametersThatNobodyKnowsAreIgnored(t *testing.T) {
	bubble(t, func(w *testAPI) {
		for _, path := range []string{"/v2/pods?colour=&colour=red", "/v2/catalog/cpus?page=", "/v2/idle/health?wait=x", "/v2/idle/requests?x="} {
			w.want(200, "GET", path, "")
		}
	})
}

func TestCertificationsOfACatalogCanBeAskedFor(t *testing.T) {
	bubble(t, func(w *testAPI) {
		cat := catalog.Sample()
		cat.DataCenters[0].Compliance = []string{"C5"}
		p, err := pods.New(memory.NewPods(), cat, pods.SimulatedHosts(cat, memory.NewRuntime(nil)), nil)
		if err != nil {
			t.Fatal(err)
		}
		w.handler = httpapi.NewControl(httpapi.Services{Pods: p}, &w.options)
		for path, want := range map[string]int{"?compliance=C5": 200, "?compliance=C6": 422, "?compliance=ITAR": 200} {
			if got, _ := statusOf(t, w.handler, "GET", "/v2/catalog/datacenters"+path); got != want {
				t.Errorf("%s = %d, want %d", path, got, want)
			}
		}
	})
}

// queryRefusals are known parameters whose values are empty or of the wrong type.
func queryRefusals() []refusal {
	const (
		sources, states = "source must be one of container, system", "status must be one of IN_QUEUE, IN_PROGRESS, COMPLETED, FAILED, CANCELLED, TIMED_OUT"
		wait, ttl       = "wait must be from 1000 to 300000 milliseconds", "ttl must be from 1000 to 604800000 milliseconds"
		format          = "format must be one of array, envelope"
		regions         = "regions must be one of NORTH_AMERICA, SOUTH_AMERICA, EUROPE, ASIA, MIDDLE_EAST, AFRICA, OCEANIA, ANTARCTICA, UNKNOWN"
		compliance      = "compliance must be one of GDPR, ISO_IEC_27001, ISO_14001, PCI_DSS, HITRUST, SOC_1_TYPE_2, SOC_2_TYPE_2, SOC_3_TYPE_2, ITAR, FISMA_HIGH, HIPAA, RENEWABLE"
	)
	var rows []refusal
	for _, row := range [][2]string{
		{"GET /v2/pods?includeClusterPods=", "includeClusterPods must be true or false"},
		{"GET /v2/pods?includeClusterPods=&includeClusterPods=true", "includeClusterPods must be true or false"},
		{"GET /v2/pods?includeClusterPods", "includeClusterPods must be true or false"},
		{"GET /v2/account/limits?windows=", "windows must be true or false"},
		{"GET /v2/pods?limit=", "limit must be an integer from 1 to 1000"},
		{"GET /v2/registries?limit=1001", "limit must be an integer from 1 to 1000"},
		{"GET /v2/templates?cursor=", "cursor must not be empty"},
		{"GET /v2/network-volumes?cursor=x", "cursor must be one that an answer to the same request has returned"},
		{"GET /v2/pods/{gpu}/logs?source=", sources},
		{"GET /v2/pods/{gpu}/logs?tail=", "tail must be an integer from 0 to 5000"},
		{"GET /v2/pods/{gpu}/logs?since=", "since must be an RFC 3339 timestamp or an id that this stream has sent"},
		{"GET /v2/catalog/templates?source=", "source must be one of official, verified, community"},
		{"GET /v2/catalog/templates?source=OFFICIAL", "source must be one of official, verified, community"},
		{"GET /v2/catalog/gpus?include=", "include must be one of AVAILABILITY"},
		{"GET /v2/catalog/gpus?product=", "product must be one of POD, CLUSTER, SERVERLESS"},
		{"GET /v2/catalog/gpus?count=", "count must be an integer from 1 to 2147483647"},
		{"GET /v2/catalog/gpus?cloud=", "cloud must be one of SECURE, COMMUNITY"},
		{"GET /v2/catalog/gpus?countryCodes=", `countryCodes must be a list of two capital letters each: "" is not`},
		{"GET /v2/catalog/gpus?countryCodes=FR,,DE", `countryCodes must be a list of two capital letters each: "" is not`},
		{"GET /v2/catalog/gpus?cudaVersions=", `cudaVersions must be a list of major.minor each: "" is not`},
		{"GET /v2/catalog/gpus?minCudaVersion=", "minCudaVersion must be major or major.minor"},
		{"GET /v2/catalog/gpus/NVIDIA%20H200?include=", "include must be one of AVAILABILITY"},
		{"GET /v2/catalog/cpus?vcpuCount=", "vcpuCount must be an integer from 2 to 2147483647"},
		{"GET /v2/catalog/cpus?product=", "product must be one of POD, SERVERLESS"},
		{"GET /v2/catalog/cpus/cpu3c?include=AVAILABILITY,", "include must be one of AVAILABILITY"},
		{"GET /v2/catalog/datacenters?compliance=XX", compliance},
		{"GET /v2/catalog/datacenters?compliance=gdpr", compliance},
		{"GET /v2/catalog/datacenters?compliance=GDPR,XX", compliance},
		{"GET /v2/catalog/datacenters?compliance=", compliance},
		{"GET /v2/catalog/datacenters?regions=", regions},
		{"GET /v2/catalog/datacenters?regions=EUROPE,", regions},
		{"GET /v2/catalog/datacenters?networkVolumeTypes=", "networkVolumeTypes must be one of STANDARD, HIGH_PERFORMANCE"},
		{"GET /v2/catalog/datacenters?globalNetwork=", "globalNetwork must be true or false"},
		{"GET /v2/catalog/datacenters?include=", "include must be one of GPU_AVAILABILITY, CPU_AVAILABILITY"},
		{"GET /v2/catalog/datacenters/EU-FR-1?include=", "include must be one of GPU_AVAILABILITY, CPU_AVAILABILITY"},
		{"GET /v2/billing?bucketSize=", "bucketSize must be one of hour, day, week, month, year"},
		{"GET /v2/billing?startTime=", "startTime must be a time as in RFC 3339"},
		{"GET /v2/billing?endTime=", "endTime must be a time as in RFC 3339"},
		{"GET /v2/billing?lastN=", "lastN must be an integer from 1 to 10000"},
		{"GET /v2/billing/pods?podId=", "podId must not be empty"},
		{"GET /v2/billing/serverless?serverlessId=", "serverlessId must not be empty"},
		{"GET /v2/billing/network-volumes?networkVolumeId=", "networkVolumeId must not be empty"},
		{"POST /v2/idle/runsync?wait=", wait},
		{"POST /v2/idle/runsync?wait", wait},
		{"POST /v2/idle/runsync?wait=&wait=5000", wait},
		{"POST /v2/idle/runsync?wait=1e4", wait},
		{"GET /v2/idle/status/{queued}?ttl=", ttl},
		{"POST /v2/idle/status/{queued}?ttl=", ttl},
		{"GET /v2/idle/status-sync/{queued}?wait=", wait},
		{"POST /v2/idle/status-sync/{queued}?wait=", wait},
		{"GET /v2/idle/stream/{queued}?wait=", wait},
		{"GET /v2/idle/stream/{queued}?format=", format},
		{"POST /v2/idle/stream/{queued}?format=ARRAY", format},
		{"GET /v2/idle/requests?status=", states},
		{"GET /v2/idle/requests?status=FAILED,", states},
		{"GET /v2/idle/requests?limit=", "limit must be an integer from 1 to 100"},
		{"GET /v2/idle/requests?idPrefix=", "idPrefix must not be empty"},
		{"GET /v2/idle/requests?offset=", "offset must be an integer from 0 to 2147483647"},
		{"GET /v2/idle/requests?full=", "full must be true or false"},
	} {
		body := ""
		if row[0][:5] == "POST " {
			body = `{"input":{}}`
		}
		rows = append(rows, refusal{row[0], body, 422, row[1], nil})
	}
	return rows
}

package httpapi

import (
	"net/http"
	"time"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/billing"
)

func billingOperations() []operation {
	return group(APIControl, AreaBilling,
		op("listBilling", "GET /v2/billing", ScopePodsRead, allBilling, byOwner),
		op("listPodBilling", "GET /v2/billing/pods", ScopePodsRead, podBilling, byOwner),
		op("listServerlessBilling", "GET /v2/billing/serverless", ScopePodsRead, serverlessBilling, byOwner),
		op("listNetworkVolumeBilling", "GET /v2/billing/network-volumes", ScopePodsRead, volumeBilling, byOwner),
		op("listEndpointBilling", "GET /v2/billing/endpoints", ScopePodsRead, publicBilling, byOwner),
		op("listClusterBilling", "GET /v2/billing/clusters", ScopePodsRead, clusterBilling, byOwner),
	)
}

func (b *describer) describeBilling() map[string]description {
	return map[string]description{
		"listBilling":              {summary: "Sum up what was used", params: billingParams(""), answers: ok(openapi.For[billingBody[allRecordBody, allMetadata]](&b.Builder))},
		"listPodBilling":           {summary: "Sum up what pods used", params: billingParams("podId"), answers: ok(openapi.For[billingBody[podRecordBody, podMetadata]](&b.Builder))},
		"listServerlessBilling":    {summary: "Sum up what workers used", params: billingParams("serverlessId"), answers: ok(openapi.For[billingBody[serverlessRecordBody, serverlessMetadata]](&b.Builder))},
		"listClusterBilling":       {summary: "Sum up what clusters used", params: billingParams("clusterId"), answers: ok(openapi.For[billingBody[clusterRecordBody, clusterMetadata]](&b.Builder))},
		"listEndpointBilling":      {summary: "Sum up what public endpoints used", text: "There are none here: the report is empty.", params: billingParams(""), answers: ok(openapi.For[billingBody[publicRecordBody, publicMetadata]](&b.Builder))},
		"listNetworkVolumeBilling": {summary: "Sum up what network volumes used", params: billingParams("networkVolumeId"), answers: ok(openapi.For[billingBody[volumeRecordBody, volumeMetadata]](&b.Builder))},
	}
}

func billingParams(filter string) []*openapi.Parameter {
	list := []*openapi.Parameter{
		inQuery("bucketSize", values(billing.Hour, billing.Day, billing.Week, billing.Month, billing.Year).Defaults(billing.Day), "The length of a record."),
		instant("startTime", "Begin of the window."),
		instant("endTime", "End of the window. Default: now."),
		number("lastN", 1, billing.MaxBuckets, nil, "The last buckets, instead of a window."),
	}
	if filter != "" {
		list = append(list, inQuery(filter, openapi.Of("string").NotEmpty(), "Only of this one."))
	}
	return list
}

// billing reads a query and creates the report. filter is the name of the parameter that
// selects one thing, or empty.
func (c *call) billing(kind pods.UsageKind, filter string) (r billing.Report, err error) {
	q := billing.Query{Kind: kind}
	if q.Size, err = queryOneOf(c, "bucketSize", billing.Day, billing.Hour, billing.Day, billing.Week, billing.Month, billing.Year); err != nil {
		return r, err
	}
	if filter != "" {
		if q.ID, err = c.queryText(filter); err != nil {
			return r, err
		}
	}
	if q.Start, err = c.queryTime("startTime"); err != nil {
		return r, err
	}
	if q.End, err = c.queryTime("endTime"); err != nil {
		return r, err
	}
	if q.LastN, err = c.queryInt("lastN", 0, 1, billing.MaxBuckets); err != nil {
		return r, err
	}
	sources := []billing.UsageSource{c.Pods}
	if c.Volumes != nil {
		sources = append(sources, c.Volumes)
	}
	return c.Billing.Report(c.r.Context(), c.owner, q, sources...)
}

type rangeBody struct {
	StartTime wireTime `json:"startTime"`
	EndTime   wireTime `json:"endTime"`
}

type billingQueryBody struct {
	rangeBody
	BucketSize billing.BucketSize `json:"bucketSize"`
	PodID      *string            `json:"podId,omitempty"`
	EndpointID *string            `json:"serverlessId,omitempty"`
	VolumeID   *string            `json:"networkVolumeId,omitempty"`
	ClusterID  *string            `json:"clusterId,omitempty"`
}

type billingBody[R, M any] struct {
	Records  []R `json:"records"`
	Metadata M   `json:"metadata"`
}

// A billingSummary has the metadata of a report.
type billingSummary struct {
	query   billingQueryBody
	id      *string // the filter of the query
	records int
	unique  int // number of things in the records
	total   billing.Amounts
}

// report answers with the records of one kind. The parameter filter selects one thing.
func report[R, M any](c *call, kind pods.UsageKind, filter string, record func(billing.Record) R, metadata func(billingSummary) M) error {
	r, err := c.billing(kind, filter)
	if err != nil {
		return err
	}
	id, _ := c.query(filter)
	s := billingSummary{query: queryOf(r), id: orNull(id), records: len(r.Records)}
	s.total, s.unique = summed(r)
	return writeJSON(c.w, http.StatusOK, billingBody[R, M]{bodies(r.Records, record, all), metadata(s)})
}

type podAmounts struct {
	TotalAmount float64 `json:"totalAmount"`
	GPUAmount   float64 `json:"gpuAmount"`
	CPUAmount   float64 `json:"cpuAmount"`
	DiskAmount  float64 `json:"diskAmount"`
}

func podAmountsOf(a billing.Amounts) podAmounts {
	a = a.Round()
	return podAmounts{totalOf(a), a.GPU, a.CPU, a.Disk}
}

type podRecordBody struct {
	rangeBody
	podAmounts
	PodID string `json:"podId"`
}

type podMetadata struct {
	Query          billingQueryBody `json:"query"`
	RecordCount    int              `json:"recordCount"`
	UniquePodCount int              `json:"uniquePodCount"`
	Totals         podAmounts       `json:"totals"`
}

func podBilling(c *call) error {
	return report(c, pods.PodUsage, "podId",
		func(x billing.Record) podRecordBody {
			return podRecordBody{rangeOf(x.Start, x.End), podAmountsOf(x.Amounts), x.ID}
		},
		func(s billingSummary) podMetadata {
			s.query.PodID = s.id
			return podMetadata{s.query, s.records, s.unique, podAmountsOf(s.total)}
		})
}

type serverlessAmounts struct {
	podAmounts
	FeeAmount float64 `json:"feeAmount"` // no catalog has one
}

func serverlessAmountsOf(a billing.Amounts) serverlessAmounts {
	return serverlessAmounts{podAmounts: podAmountsOf(a)}
}

type serverlessRecordBody struct {
	rangeBody
	serverlessAmounts
	EndpointID string `json:"serverlessId"`
}

type serverlessMetadata struct {
	Query               billingQueryBody  `json:"query"`
	RecordCount         int               `json:"recordCount"`
	UniqueEndpointCount int               `json:"uniqueServerlessCount"`
	Totals              serverlessAmounts `json:"totals"`
}

func serverlessBilling(c *call) error {
	return report(c, pods.WorkerUsage, "serverlessId",
		func(x billing.Record) serverlessRecordBody {
			return serverlessRecordBody{rangeOf(x.Start, x.End), serverlessAmountsOf(x.Amounts), x.ID}
		},
		func(s billingSummary) serverlessMetadata {
			s.query.EndpointID = s.id
			return serverlessMetadata{s.query, s.records, s.unique, serverlessAmountsOf(s.total)}
		})
}

type publicAmounts struct {
	TotalAmount float64 `json:"totalAmount"`
}

type publicRecordBody struct {
	rangeBody
	publicAmounts
}

type publicMetadata struct {
	Query       billingQueryBody `json:"query"`
	RecordCount int              `json:"recordCount"`
	Totals      publicAmounts    `json:"totals"`
}

// publicUsage is of public endpoints, which nobody has here.
const publicUsage pods.UsageKind = "public"

func publicBilling(c *call) error {
	return report(c, publicUsage, "",
		func(x billing.Record) publicRecordBody {
			return publicRecordBody{rangeOf(x.Start, x.End), publicAmounts{totalOf(x.Amounts)}}
		},
		func(s billingSummary) publicMetadata {
			return publicMetadata{s.query, s.records, publicAmounts{totalOf(s.total)}}
		})
}

type volumeAmounts struct {
	TotalAmount           float64 `json:"totalAmount"`
	StandardAmount        float64 `json:"standardAmount"`
	HighPerformanceAmount float64 `json:"highPerformanceAmount"`
}

func volumeAmountsOf(a billing.Amounts) volumeAmounts {
	a = a.Round()
	return volumeAmounts{totalOf(a), a.Standard, a.HighPerformance}
}

type volumeRecordBody struct {
	rangeBody
	volumeAmounts
	VolumeID string `json:"networkVolumeId"`
}

type volumeMetadata struct {
	Query             billingQueryBody `json:"query"`
	RecordCount       int              `json:"recordCount"`
	UniqueVolumeCount int              `json:"uniqueNetworkVolumeCount"`
	Totals            volumeAmounts    `json:"totals"`
}

func volumeBilling(c *call) error {
	return report(c, pods.VolumeUsage, "networkVolumeId",
		func(x billing.Record) volumeRecordBody {
			return volumeRecordBody{rangeOf(x.Start, x.End), volumeAmountsOf(x.Amounts), x.ID}
		},
		func(s billingSummary) volumeMetadata {
			s.query.VolumeID = s.id
			return volumeMetadata{s.query, s.records, s.unique, volumeAmountsOf(s.total)}
		})
}

// clusterAmounts are those of the pods of clusters, whose network costs nothing.
type clusterAmounts struct {
	TotalAmount      float64 `json:"totalAmount"`
	GPUAmount        float64 `json:"gpuAmount"`
	DiskAmount       float64 `json:"diskAmount"`
	NetworkingAmount float64 `json:"networkingAmount"`
}

func clusterAmountsOf(a billing.Amounts) clusterAmounts {
	a = a.Round()
	return clusterAmounts{TotalAmount: totalOf(a), GPUAmount: a.GPU, DiskAmount: a.Disk}
}

type clusterRecordBody struct {
	rangeBody
	clusterAmounts
	ClusterID string `json:"clusterId"`
}

type clusterMetadata struct {
	Query              billingQueryBody `json:"query"`
	RecordCount        int              `json:"recordCount"`
	UniqueClusterCount int              `json:"uniqueClusterCount"`
	Totals             clusterAmounts   `json:"totals"`
}

func clusterBilling(c *call) error {
	return report(c, pods.ClusterUsage, "clusterId",
		func(x billing.Record) clusterRecordBody {
			return clusterRecordBody{rangeOf(x.Start, x.End), clusterAmountsOf(x.Amounts), x.ID}
		},
		func(s billingSummary) clusterMetadata {
			s.query.ClusterID = s.id
			return clusterMetadata{s.query, s.records, s.unique, clusterAmountsOf(s.total)}
		})
}

// allAmounts has every member of the schema; amounts of things that are not offered are 0.
type allAmounts struct {
	TotalAmount             float64 `json:"totalAmount"`
	PodGPUAmount            float64 `json:"podGpuAmount"`
	PodCPUAmount            float64 `json:"podCpuAmount"`
	PodDiskAmount           float64 `json:"podDiskAmount"`
	ServerlessGPUAmount     float64 `json:"serverlessGpuAmount"`
	ServerlessCPUAmount     float64 `json:"serverlessCpuAmount"`
	ServerlessDiskAmount    float64 `json:"serverlessDiskAmount"`
	ServerlessFeeAmount     float64 `json:"serverlessFeeAmount"`
	StorageStandardAmount   float64 `json:"storageStandardAmount"`
	StorageHighAmount       float64 `json:"storageHighPerformanceAmount"`
	EndpointAmount          float64 `json:"endpointAmount"`
	ClusterGPUAmount        float64 `json:"clusterGpuAmount"`
	ClusterDiskAmount       float64 `json:"clusterDiskAmount"`
	ClusterNetworkingAmount float64 `json:"clusterNetworkingAmount"`
}

func allAmountsOf(list []billing.Record) allAmounts {
	sums := make(map[pods.UsageKind]billing.Amounts)
	for _, x := range list {
		sums[x.Kind] = sums[x.Kind].Add(x.Amounts)
	}
	pod, worker, volume := sums[pods.PodUsage].Round(), sums[pods.WorkerUsage].Round(), sums[pods.VolumeUsage].Round()
	cluster := sums[pods.ClusterUsage].Round()
	return allAmounts{
		TotalAmount:  totalOf(pod.Add(worker).Add(volume).Add(cluster)),
		PodGPUAmount: pod.GPU, PodCPUAmount: pod.CPU, PodDiskAmount: pod.Disk,
		ServerlessGPUAmount: worker.GPU, ServerlessCPUAmount: worker.CPU, ServerlessDiskAmount: worker.Disk,
		StorageStandardAmount: volume.Standard, StorageHighAmount: volume.HighPerformance,
		ClusterGPUAmount: cluster.GPU, ClusterDiskAmount: cluster.Disk,
	}
}

type allRecordBody struct {
	rangeBody
	allAmounts
}

type allMetadata struct {
	Query       billingQueryBody `json:"query"`
	RecordCount int              `json:"recordCount"`
	Totals      allAmounts       `json:"totals"`
}

func allBilling(c *call) error {
	r, err := c.billing("", "")
	if err != nil {
		return err
	}
	body := billingBody[allRecordBody, allMetadata]{Records: []allRecordBody{}}
	for i := 0; i < len(r.Records); {
		first, from := r.Records[i], i
		for i < len(r.Records) && r.Records[i].Start.Equal(first.Start) {
			i++
		}
		body.Records = append(body.Records, allRecordBody{rangeOf(first.Start, first.End), allAmountsOf(r.Records[from:i])})
	}
	body.Metadata = allMetadata{queryOf(r), len(body.Records), allAmountsOf(r.Records)}
	return writeJSON(c.w, http.StatusOK, body)
}

func rangeOf(start, end time.Time) rangeBody { return rangeBody{wireTime(start), wireTime(end)} }

func queryOf(r billing.Report) billingQueryBody {
	return billingQueryBody{rangeBody: rangeOf(r.Start, r.End), BucketSize: r.Size}
}

// totalOf returns the sum of rounded amounts.
func totalOf(a billing.Amounts) float64 { return billing.Amounts{GPU: a.Total()}.Round().GPU }

// summed returns the sum of all records, and how many things are in them.
func summed(r billing.Report) (total billing.Amounts, unique int) {
	ids := make(map[string]bool)
	for _, x := range r.Records {
		total = total.Add(x.Amounts)
		ids[x.ID] = true
	}
	return total, len(ids)
}

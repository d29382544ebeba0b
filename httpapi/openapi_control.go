package httpapi

import (
	"maps"
	"net/http"

	"github.com/podyard/podyard/httpapi/audit"
	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/templates"
)

// descriptions describes the operations by their names. A test requires one for each that is
// offered.
func (b *describer) descriptions() map[string]description {
	all := map[string]description{
		"openapi": {summary: "Describe the interface", text: "Needs no key. Clients can ask again with If-None-Match.", answers: ok(openapi.Of("object"))},
	}
	for _, part := range []map[string]description{
		b.describePods(), b.describeStorage(), b.describeTemplates(), b.describeAccount(), b.describeBilling(), b.describeRegistries(),
		b.describeEndpoints(), b.describeEndpointLogs(), b.describeCatalog(), b.describeAdmin(), b.describeJobs(), b.describeSchedules(), b.describeBatches(), b.describeBalance(), b.describeWorkers(),
	} {
		maps.Copy(all, part)
	}
	return all
}

func (b *describer) describePods() map[string]description {
	pod := openapi.For[podBody](&b.Builder)
	return map[string]description{
		"listPods": {summary: "List the caller's pods", answers: ok(b.list("pods", pod, true)), params: []*openapi.Parameter{
			flag("includeClusterPods", "Changes nothing: there are no clusters."),
		}},
		"createPod": {
			summary: "Create a pod", text: "The answer does not imply that the pod runs: read its status. Exactly one of gpu and cpu must be there.",
			body: b.Component("CreatePodRequest", createPodBody()), answers: created(pod),
		},
		"getPod": {summary: "Get a pod", answers: ok(pod)},
		"updatePod": {
			summary: "Change a pod", text: "name and locked change at once, everything else at the next start, restart or reset.",
			body: b.Component("UpdatePodRequest", updatePodBody()), answers: ok(pod),
		},
		"deletePod": {summary: "Terminate a pod", text: "It cannot be undone.", answers: gone()},
		"podAction": {
			summary: "Start, stop, restart or terminate a pod", text: "The field actions of a pod has what its status allows now. terminate answers 204.",
			body: b.Component("PodActionRequest", actionBody()), answers: answers{http.StatusOK: pod, http.StatusNoContent: nil},
		},
		"getPodLogs": {summary: "Follow the log of a pod", text: aboutLogs, params: logParams(), answers: ok(openapi.Of("string")), media: "text/event-stream"},
		"resetPod":   {summary: "Recreate the container of a pod", text: "The disk of the container is wiped, and the image is pulled again.", answers: ok(pod)},
	}
}

const aboutLogs = "Server-sent events. data is an object with ts, source and line; id is where a reader can go on, in the header Last-Event-ID."

func logParams() []*openapi.Parameter {
	cursor := openapi.Of("string").NotEmpty()
	return []*openapi.Parameter{
		query("source", values(pods.ContainerLog, pods.SystemLog), "Absent: both."),
		number("tail", 0, maxTail, defaultTail, "How many past lines come first."),
		query("since", cursor, "A time, or the id of an event: all later lines come. tail then does not count."),
		{Name: "Last-Event-ID", In: "header", Schema: openapi.Of("string"), Description: "As since, which it precedes."},
	}
}

func (b *describer) describeStorage() map[string]description {
	volume := openapi.For[volumeBody](&b.Builder)
	return map[string]description{
		"listNetworkVolumes":  {summary: "List the caller's network volumes", answers: ok(b.list("networkVolumes", volume, true))},
		"createNetworkVolume": {summary: "Create a network volume", body: b.Component("CreateNetworkVolumeRequest", createVolumeBody()), answers: created(volume)},
		"getNetworkVolume":    {summary: "Get a network volume", answers: ok(volume)},
		"updateNetworkVolume": {
			summary: "Rename or enlarge a network volume", text: "It cannot become smaller.",
			body: b.Component("UpdateNetworkVolumeRequest", updateVolumeBody()), answers: ok(volume),
		},
		"deleteNetworkVolume": {summary: "Delete a network volume with what is in it", text: "400 while a pod or an endpoint uses it.", answers: gone()},
	}
}

func (b *describer) describeTemplates() map[string]description {
	template := openapi.For[templateBody](&b.Builder)
	return map[string]description{
		"listTemplates":  {summary: "List the caller's templates", answers: ok(b.list("templates", template, true))},
		"createTemplate": {summary: "Create a template", body: b.Component("CreateTemplateRequest", templateSettingsBody("name", "image")), answers: created(template)},
		"getTemplate":    {summary: "Get a template, one of the caller or a public one", answers: ok(template)},
		"updateTemplate": {summary: "Change a template", body: b.Component("UpdateTemplateRequest", templateSettingsBody()), answers: ok(template)},
		"deleteTemplate": {summary: "Delete a template", text: "400 while a pod of its owner was made from it.", answers: gone()},
		"listPublicTemplates": {summary: "List public templates", answers: ok(b.list("templates", template, false)), params: []*openapi.Parameter{
			query("source", values(templates.FromOfficial, templates.FromVerified, templates.FromCommunity).Defaults(templates.FromOfficial), "Who published them."),
		}},
	}
}

func (b *describer) describeAccount() map[string]description {
	key := openapi.For[keyBody](&b.Builder)
	keys := fields(map[string]*openapi.Schema{"keys": openapi.List(openapi.Of("string"))}, "keys")
	return map[string]description{
		"listKeys":      {summary: "List the caller's API keys", answers: ok(b.list("keys", key, true))},
		"createKey":     {summary: "Create an API key", text: "Only this answer has the secret.", body: b.Component("CreateKeyRequest", createKeyBody()), answers: created(key)},
		"getKey":        {summary: "Get an API key", answers: ok(key)},
		"updateKey":     {summary: "Change the scopes or the end of an API key", body: b.Component("UpdateKeyRequest", updateKeyBody()), answers: ok(key)},
		"deleteKey":     {summary: "Delete an API key", text: "It is refused from then on. 409 for the last one of an operator.", answers: gone()},
		"rotateKey":     {summary: "Give an API key a new secret", text: "Only this answer has it.", body: b.Component("RotateKeyRequest", rotateKeyBody()), optional: true, answers: ok(key)},
		"listLimits":    {summary: "List what the caller holds, of what may be held", text: "An operator who asks for all users gets what they use, the user with the most bytes first.", answers: ok(fields(map[string]*openapi.Schema{"users": openapi.List(openapi.For[userLimits](&b.Builder))}, "users"))},
		"getSshKeys":    {summary: "List the caller's public SSH keys", answers: ok(keys)},
		"updateSshKeys": {summary: "Replace the caller's public SSH keys", body: b.Component("UpdateSshKeysRequest", sshKeysBody()), answers: ok(keys)},
	}
}

func billingParams(filter string) []*openapi.Parameter {
	list := []*openapi.Parameter{
		query("bucketSize", values(billing.Hour, billing.Day, billing.Week, billing.Month, billing.Year).Defaults(billing.Day), "The length of a record."),
		instant("startTime", "Begin of the window."),
		instant("endTime", "End of the window. Default: now."),
		number("lastN", 1, billing.MaxBuckets, nil, "The last buckets, instead of a window."),
	}
	if filter != "" {
		list = append(list, query(filter, openapi.Of("string").NotEmpty(), "Only of this one."))
	}
	return list
}

func (b *describer) describeBilling() map[string]description {
	return map[string]description{
		"listBilling":              {summary: "Sum up what was used", params: billingParams(""), answers: ok(openapi.For[billingBody[allRecordBody, allMetadata]](&b.Builder))},
		"listPodBilling":           {summary: "Sum up what pods used", params: billingParams("podId"), answers: ok(openapi.For[billingBody[podRecordBody, podMetadata]](&b.Builder))},
		"listServerlessBilling":    {summary: "Sum up what workers used", params: billingParams("serverlessId"), answers: ok(openapi.For[billingBody[serverlessRecordBody, serverlessMetadata]](&b.Builder))},
		"listNetworkVolumeBilling": {summary: "Sum up what network volumes used", params: billingParams("networkVolumeId"), answers: ok(openapi.For[billingBody[volumeRecordBody, volumeMetadata]](&b.Builder))},
	}
}

func (b *describer) describeRegistries() map[string]description {
	registry := openapi.For[registryBody](&b.Builder)
	return map[string]description{
		"listRegistries": {summary: "List the caller's credentials for registries", answers: ok(b.list("registries", registry, true))},
		"createRegistry": {summary: "Store a credential for a registry", text: "No answer has it.", body: b.Component("CreateRegistryRequest", createRegistryBody()), answers: created(registry)},
		"getRegistry":    {summary: "Get a credential, without its secrets", answers: ok(registry)},
		"deleteRegistry": {summary: "Delete a credential", text: "400 while a pod or an endpoint uses it.", answers: gone()},
	}
}

func (b *describer) describeCatalog() map[string]description {
	gpu, cpu, dc := openapi.For[gpuTypeBody](&b.Builder), openapi.For[cpuTypeBody](&b.Builder), openapi.For[dataCenterBody](&b.Builder)
	dcStock := queryMany("include", values("GPU_AVAILABILITY", "CPU_AVAILABILITY"), "What to add to the answer.")
	return map[string]description{
		"listGpuTypes": {summary: "List GPU types", params: gpuParams(), answers: ok(b.list("gpus", gpu, false))},
		"getGpuType":   {summary: "Get a GPU type", params: gpuParams(), answers: ok(gpu)},
		"listCpuTypes": {summary: "List CPU flavors", params: cpuParams(), answers: ok(b.list("cpus", cpu, false))},
		"getCpuType":   {summary: "Get a CPU flavor", params: cpuParams(), answers: ok(cpu)},
		"listDataCenters": {summary: "List data centers", answers: ok(b.list("dataCenters", dc, false)), params: []*openapi.Parameter{
			dcStock,
			queryMany("regions", values(catalog.Regions()...), "In one of these regions."),
			queryMany("networkVolumeTypes", values(catalog.Standard, catalog.HighPerformance), "With all of these types of volumes."),
			queryMany("compliance", openapi.Of("string").NotEmpty(), "With all of these certifications."),
			flag("globalNetwork", "With or without global networking."),
		}},
		"getDataCenter": {summary: "Get a data center", params: []*openapi.Parameter{dcStock}, answers: ok(dc)},
	}
}

// stockParams are the parameters of a product that need include=AVAILABILITY.
func stockParams(products ...string) []*openapi.Parameter {
	return []*openapi.Parameter{
		queryMany("include", values("AVAILABILITY"), "Adds what is free. It needs product."),
		queryMany("product", values(products...), "What the availability is for. It needs include, as all other parameters do."),
	}
}

func gpuParams() []*openapi.Parameter {
	letters, cuda := openapi.Of("string"), openapi.Of("string")
	letters.Pattern, cuda.Pattern = country.String(), exactCUDA.String()
	least := openapi.Of("string")
	least.Pattern = atLeastCUDA.String()
	return append(stockParams("POD", "CLUSTER", "SERVERLESS"),
		number("count", 1, 1<<31-1, 1, "GPUs that must be free on one host."),
		query("cloud", values(pods.Secure, pods.Community).Defaults(pods.DefaultCloud), "The tier."),
		queryMany("countryCodes", letters, "Only in these countries."),
		queryMany("cudaVersions", cuda, "Only hosts with one of these versions."),
		query("minCudaVersion", least, "Only hosts with this version or a later one."),
	)
}

func cpuParams() []*openapi.Parameter {
	return append(stockParams("POD", "SERVERLESS"), number("vcpuCount", 2, 1<<31-1, 2, "vCPUs that must be free on one host, a power of two."))
}

func (b *describer) describeAdmin() map[string]description {
	host, endpoint, server := openapi.For[hostBody](&b.Builder), openapi.For[endpointState](&b.Builder), openapi.For[serverState](&b.Builder)
	state := fields(map[string]*openapi.Schema{"host": host, "endpoint": endpoint, "server": server})
	lists := fields(map[string]*openapi.Schema{
		"server": openapi.OrNull(server), "hosts": openapi.List(host), "endpoints": openapi.List(endpoint), "users": openapi.List(openapi.For[userState](&b.Builder)),
	}, "endpoints", "hosts", "server", "users")
	erased := openapi.For[erasure](&b.Builder)
	target := b.Component("CordonRequest", cordonBody(false))
	const exactly = "Exactly one of host, endpoint and server must be there. "
	return map[string]description{
		"listAudit": {summary: "List what was changed and refused, newest first", answers: ok(b.list("records", openapi.For[audit.Record](&b.Builder), false)), params: []*openapi.Parameter{
			number("limit", 1, maxAudit, defaultAudit, "How many."),
			instant("before", "Only earlier ones."),
			query("user", openapi.Of("string").NotEmpty(), "Only of this user."),
			query("operation", openapi.Of("string").NotEmpty(), "Only of this operation."),
		}},
		"reload":   {summary: "Read the configuration of the server anew", answers: ok(openapi.For[ReloadReport](&b.Builder))},
		"cordon":   {summary: "Keep new work off a host, an endpoint or the server", text: exactly, body: target, answers: ok(state)},
		"uncordon": {summary: "Take back a cordon or a drain", text: exactly, body: target, answers: ok(state)},
		"drain":    {summary: "Cordon, and end the workers after their jobs", text: exactly, body: b.Component("DrainRequest", cordonBody(true)), answers: ok(state)},
		"deleteUserJobs": {
			summary: "End and erase the jobs of a user on all endpoints", text: "It makes room on a disk that a user has filled. The bytes are free soon after.",
			answers: ok(openapi.For[erasedJobs](&b.Builder)),
		},
		"adminState": {summary: "Get the state of the server", answers: ok(lists)},
		"deleteUser": {
			summary: "End and erase everything of a user", text: "202: something is left for another call. Repeat it until it answers 404.",
			answers: answers{http.StatusOK: erased, http.StatusAccepted: erased},
		},
	}
}

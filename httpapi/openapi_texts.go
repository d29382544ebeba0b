package httpapi

import "github.com/podyard/podyard/internal/openapi"

// memberTexts say what members mean, by name, or by component and name where a name has
// several meanings.
func memberTexts() map[string]string {
	return map[string]string{
		"actions":                       "What the status allows now.",
		"allowedCudaVersions":           "CUDA versions of the host, major.minor. Empty: any.",
		"args":                          "Arguments for the entry point of the image, split as a POSIX shell does.",
		"availability":                  "How much of it is free.",
		"cloud":                         "The tier of the hosts.",
		"cost":                          "USD an hour at this moment.",
		"Cost.hour":                     "USD an hour at this moment, of pods, clusters and workers of own endpoints.",
		"Cost.month":                    "USD since the month began, in UTC.",
		"Cost.costPerHour":              "The most USD an hour; null: no limit.",
		"Cost.costPerMonth":             "The most USD of a month in UTC; null: no limit.",
		"Cost.ends":                     "When the budget of the month is used up at this rate; null: not in this month, or it is used up.",
		"UserLimits.cost":               "What the user spends, in USD.",
		"cpu":                           "The vCPUs, if it has no GPUs.",
		"CreateEndpointRequest.cpu":     "CPU flavors that workers may have, if they have no GPUs.",
		"createdAt":                     "When it was created.",
		"cudaVersion":                   "CUDA version of the driver of the host; null: not known.",
		"dataCenter":                    "Id of the data center.",
		"dataCenterId":                  "Where it is; null until it is placed.",
		"dataCenterIds":                 "Where it may be placed, in this order. Empty: anywhere.",
		"detail":                        "What is wrong, in a sentence.",
		"disk":                          "GB of the disk of the container, which is wiped by a restart.",
		"env":                           "Environment variables.",
		"errors":                        "One text for each fault of the request.",
		"expires":                       "When it ends; null: never.",
		"flashboot":                     "Kept and returned.",
		"globalNetworking":              "A network between the pods of one owner.",
		"gpu":                           "The GPUs, if it has any.",
		"id":                            "The id.",
		"idleTimeout":                   "Seconds without a job after which a worker ends.",
		"image":                         "Reference of the container image.",
		"input":                         "What the worker gets. Its bytes are kept as they are.",
		"isStale":                       "Made by an earlier release than the present one.",
		"locked":                        "A locked pod cannot be stopped, restarted or reset.",
		"manufacturer":                  "Who makes the GPU.",
		"max":                           "The most.",
		"memory":                        "GB of memory.",
		"min":                           "The least.",
		"minCudaVersion":                "The earliest CUDA version of the host, major.minor.",
		"mounts":                        "Storage in the container: host-local or a network volume.",
		"name":                          "The name.",
		"network":                       "A network volume in the same data center. One at most.",
		"networkVolumes":                "Ids of network volumes. A worker mounts the one of its data center.",
		"CreateScheduleRequest.overlap": "What happens at an instant at which the job before has not ended. Default: skip.",
		"UpdateScheduleRequest.overlap": "What happens at an instant at which the job before has not ended.",
		"Schedule.overlap":              "What happens at an instant at which the job before has not ended.",
		"catchUp":                       "What happens with instants at which no server ran. Default: none.",
		"cron":                          "Five fields: minute, hour, day of the month, month, day of the week.",
		"timeZone":                      "A zone of the tz database, such as Europe/Berlin. Default: UTC.",
		"overlap":                       "Milliseconds in which the old secret is accepted, too.",
		"overlapUntil":                  "Until when the old secret is accepted, too; null: it is not.",
		"path":                          "Where it is mounted in the container.",
		"CreateKeyRequest.user":         "Whose key it is. Only operators may name another user.",
		"Key.key":                       "The secret, only when it was made.",
		"persistent":                    "Storage of the host, which is lost with it.",
		"pools":                         "GPU pools of the catalog.",
		"ports":                         "Ports of the container: number/protocol, the protocol one of http, tcp and udp.",
		"price":                         "USD an hour.",
		"public":                        "Others can see it, too.",
		"PodRuntime.ports":              "Where the ports are reached.",
		"attempts":                      "How often the job runs, in all.",
		"delay":                         "Milliseconds before the second attempt.",
		"factor":                        "By what each further delay is longer.",
		"jitter":                        "The part of a delay that is random.",
		"key":                           "Jobs with one key take turns with those of others.",
		"maxDelay":                      "The longest delay in milliseconds.",
		"priority":                      "9 goes first.",
		"queue":                         "The place of the job in the queue.",
		"retry":                         "What happens after a failure.",
		"startAfter":                    "Milliseconds from now, or a time.",
		"timeouts":                      "A job that timed out runs again, too.",
		"queueDelay":                    "Seconds that the oldest job may wait before another worker starts.",
		"registry":                      "Id of the credential that the image is pulled with.",
		"requestCount":                  "Jobs for each worker.",
		"requestUrls":                   "Addresses for jobs; {job_id} stands for the id of a job. A load-balancing endpoint has base and health only.",
		"runtime":                       "What can be seen while it runs, else null.",
		"s3Config":                      "Where the worker stores files. Only the worker gets it.",
		"scaling":                       "What decides on the number of workers.",
		"scopes":                        "What the key allows.",
		"serverless":                    "The template is for endpoints.",
		"size":                          "GB.",
		"ssh":                           "How to reach sshd in the container.",
		"startJupyter":                  "Asks the image to start Jupyter.",
		"startSsh":                      "Asks the image to start sshd with the caller's public keys.",
		"startedAt":                     "The last start.",
		"status":                        "The status.",
		"stopPods":                      "The pods of the host are stopped, too, except locked ones.",
		"template":                      "Id of the template that it was created from.",
		"templateId":                    "Template for what the request leaves out.",
		"timeout":                       "Milliseconds that a job may run.",
		"title":                         "The status in words.",
		"uptime":                        "Seconds since the start.",
		"util":                          "Percent.",
		"memoryUtil":                    "Percent of the memory.",
		"vcpuCount":                     "vCPUs, a power of two.",
		"volumeId":                      "Id of the network volume. It cannot be changed.",
		"webhook":                       "Absolute http or https URL that gets the job when it has ended.",
		"workers":                       "The workers.",
		"CreateEndpointRequest.type":    "QUEUE is offered.",
	}
}

// explain adds texts to the members of the components that have none.
func explain(doc *openapi.Document) {
	texts := memberTexts()
	for name, s := range doc.Components.Schemas {
		explainMembers(name, s, texts)
	}
}

func explainMembers(component string, s *openapi.Schema, texts map[string]string) {
	for name, m := range s.Properties {
		if m.Description == "" {
			m.Description = texts[name]
			if t := texts[component+"."+name]; t != "" {
				m.Description = t
			}
		}
		explainMembers(component, m, texts)
	}
	if s.Items != nil {
		explainMembers(component, s.Items, texts)
	}
}

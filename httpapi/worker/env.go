package worker

import "strings"

// Env returns the variables by which a worker of the public SDK, or of this package (see FromEnv),
// works for an endpoint: for somebody who starts workers himself. url is the base of the jobs API,
// including /v2. id identifies the worker while it runs, and must be another one for each. The
// addresses have a query, because the SDK appends to it.
func Env(url, key, endpoint, id string) map[string]string {
	base := strings.TrimRight(url, "/") + "/" + endpoint
	return map[string]string{
		"RUNPOD_WEBHOOK_GET_JOB":         base + "/job-take/$ID?gpu=cpu",
		"RUNPOD_WEBHOOK_POST_OUTPUT":     base + "/job-done/$RUNPOD_POD_ID/$ID?gpu=cpu",
		"RUNPOD_WEBHOOK_POST_STREAM":     base + "/job-stream/$RUNPOD_POD_ID/$ID?gpu=cpu",
		"RUNPOD_WEBHOOK_PING":            base + "/ping/$RUNPOD_POD_ID?gpu=cpu",
		"RUNPOD_PING_INTERVAL":           "3000", // ms
		"RUNPOD_POD_ID":                  id,
		"RUNPOD_AI_API_KEY":              key,
		"RUNPOD_ENDPOINT_ID":             endpoint,
		"RUNPOD_SKIP_AUTO_SYSTEM_CHECKS": "true",
		"RUNPOD_SKIP_GPU_CHECK":          "true",
	}
}

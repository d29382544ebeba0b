package double

import (
	"maps"
	"slices"
)

// Env returns the variables that clients of the hosted service read, with the key and the
// addresses of the API, for a server at url ("http://127.0.0.1:4711").
func (s *Server) Env(url string) map[string]string {
	return map[string]string{
		"RUNPOD_API_KEY":            s.o.Key,
		"RUNPOD_ENDPOINT_BASE_URL":  url + "/v2", // the Python SDK and flash
		"RUNPOD_SERVERLESS_API_URL": url + "/v2",
		"RUNPOD_API_BASE_URL":       url, // the MCP server
		"RUNPOD_REST_API_URL":       url + "/v2",
		"RUNPOD_URL_MIXED_OK":       "1", // flash: the addresses may differ
		"PODYARD_URL":               url,
		"PODYARD_API_KEY":           s.o.Key,
		"PODYARD_WEBHOOK_SECRET":    s.WebhookSecret(),
	}
}

// WorkerEnv returns the variables that the worker of the public SDK reads, for worker id of an
// endpoint of a server at url. The URLs have a query, because workers append to it.
func (s *Server) WorkerEnv(url, endpoint, id string) map[string]string {
	base := url + "/v2/" + endpoint
	return map[string]string{
		"RUNPOD_WEBHOOK_GET_JOB":     base + "/job-take/$ID?gpu=none",
		"RUNPOD_WEBHOOK_POST_OUTPUT": base + "/job-done/$RUNPOD_POD_ID/$ID?gpu=none",
		"RUNPOD_WEBHOOK_POST_STREAM": base + "/job-stream/$RUNPOD_POD_ID/$ID?gpu=none",
		"RUNPOD_WEBHOOK_PING":        base + "/ping/$RUNPOD_POD_ID?gpu=none",
		"RUNPOD_POD_ID":              id,
		"RUNPOD_AI_API_KEY":          s.o.Key,
		"RUNPOD_PING_INTERVAL":       "3000", // ms
		"RUNPOD_ENDPOINT_ID":         endpoint,

		"RUNPOD_SKIP_AUTO_SYSTEM_CHECKS": "true",
		"RUNPOD_SKIP_GPU_CHECK":          "true",
	}
}

// Environ returns env as sorted lines for a process.
func Environ(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return list
}

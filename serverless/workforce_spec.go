package serverless

import (
	"net/url"
	"strconv"
	"strings"
	"time"
)

// workerSpec is a new worker of e, for which the jobs API is at api.
func (s *Service) workerSpec(e *Endpoint, w WorkerID, api string) WorkerSpec {
	c := e.Clone()
	return WorkerSpec{
		Endpoint: e.ID, Owner: e.Owner, ID: w, Release: e.Version, Container: c.Container,
		GPU: c.GPU, CPU: c.CPU, DataCenterIDs: c.DataCenterIDs, NetworkVolumes: c.NetworkVolumes,
		Env: s.workerEnv(e, w, api),
	}
}

// workerEnv is the environment that the worker protocol promises. The SDK puts its ids in
// place of $RUNPOD_POD_ID and $ID, and adds parameters with a bare &: every address has a
// query.
func (s *Service) workerEnv(e *Endpoint, w WorkerID, api string) map[string]string {
	base := strings.TrimSuffix(api, "/") + "/" + e.ID
	machine := "cpu"
	if e.GPU != nil && len(e.GPU.Pools) > 0 {
		machine = e.GPU.Pools[0]
	}
	query := "?gpu=" + url.QueryEscape(machine)
	// The SDK counts in whole seconds and does not wait at all for less than one.
	ping := max(s.lease/3, time.Second)
	return map[string]string{
		"RUNPOD_WEBHOOK_GET_JOB":         base + "/job-take/$ID" + query,
		"RUNPOD_WEBHOOK_POST_OUTPUT":     base + "/job-done/$RUNPOD_POD_ID/$ID" + query,
		"RUNPOD_WEBHOOK_POST_STREAM":     base + "/job-stream/$RUNPOD_POD_ID/$ID" + query,
		"RUNPOD_WEBHOOK_PING":            base + "/ping/$RUNPOD_POD_ID" + query,
		"RUNPOD_PING_INTERVAL":           strconv.FormatInt(ping.Milliseconds(), 10),
		"RUNPOD_POD_ID":                  string(w),
		"RUNPOD_POD_HOSTNAME":            string(w),
		"RUNPOD_AI_API_KEY":              s.WorkerKey(e.ID, w),
		"RUNPOD_ENDPOINT_ID":             e.ID,
		"RUNPOD_SKIP_AUTO_SYSTEM_CHECKS": "true",
		"RUNPOD_SKIP_GPU_CHECK":          "true",
	}
}

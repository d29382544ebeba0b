package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podyard/podyard/internal/enginetest"
	"github.com/podyard/podyard/internal/suite"
)

// The workers of the endpoint are containers: the first request starts one, which is healthy once
// its server listens, and it ends when the endpoint may have none.
func TestContainersServeALoadBalancingEndpoint(t *testing.T) {
	suite.SkipUnlessLong(t)
	onEngines(t, siteImage, ofSite, func(t *testing.T, e *enginetest.Engine) {
		config := file(t, `{"endpoints":[{"id":"web","type":"LOAD_BALANCER","image":"`+siteImage+`","cpu":[{"id":"host","vcpuCount":2}],
			"env":{"PORT":"8000","HEALTH_CHECK_PATH":"/"},"workers":{"min":0,"max":1},
			"scaling":{"type":"REQUEST_COUNT","requestCount":4}}]}`)
		data := t.TempDir()
		in := startOn(t, e, "-data", data, "-config", config)
		status, text, worker := in.balanced(http.MethodGet, "/", "")
		if status != http.StatusOK || !strings.HasPrefix(text, "hello") || worker == "" {
			t.Errorf("GET / = %d %q of worker %q, want the answer of the container", status, text, worker)
		}
		if _, _, again := in.balanced(http.MethodGet, "/", ""); again != worker {
			t.Errorf("the second answer is of worker %q, want %q", again, worker)
		}
		if code, b := in.do(http.MethodPost, "/v2/web/run", `{"input":{}}`); code != http.StatusBadRequest {
			t.Errorf("run = %d %s, want 400", code, b)
		}
		in.do(http.MethodPatch, "/v2/serverless/web", `{"workers":{"max":0}}`)
		eventually(t, "the worker ends", func() bool {
			records, err := filepath.Glob(filepath.Join(data, "docker", "pods", "*"))
			return err == nil && len(records) == 0
		})
		in.stop()
		nothingIsLeft(t, e, data)
	})
}

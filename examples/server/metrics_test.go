package main

import (
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// metricsAddr matches the line that says where metrics are served.
var metricsAddr = regexp.MustCompile(`msg="metrics are served" addr=(\S+)`)

func TestMetricsNeedAnOperatorsKeyAndNoneOnAnAddressOfTheirOwn(t *testing.T) {
	t.Parallel()
	in := start(t, "-data", "", "-metrics", "127.0.0.1:0")
	get[any](in, "POST", "/v2/echo/runsync", `{"input":{}}`, http.StatusOK)
	var found []string
	eventually(t, "the log says where metrics are", func() bool {
		found = metricsAddr.FindStringSubmatch(in.stderr.String())
		return found != nil
	})
	const want = `podyard_jobs_finished_total{endpoint="echo",reason="worker",status="COMPLETED"} 1`
	for path, text := range map[string]string{"/metrics": want, "/healthz": "ok", "/readyz": "ok", "/debug/pprof/goroutine?debug=1": "goroutine profile"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+found[1]+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if status, body, err := send(req); status != http.StatusOK || !strings.Contains(string(body), text) {
			t.Errorf("%s = %d %v, want 200 with %q", path, status, err, text)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+found[1]+"/v2/echo/runsync", strings.NewReader(`{"input":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	if status, _, _ := send(req); status != http.StatusNotFound {
		t.Errorf("a job on the address for metrics = %d, want 404", status)
	}
	if status, body := in.do("GET", "/metrics", ""); status != http.StatusOK || !strings.Contains(string(body), want) {
		t.Errorf("/metrics for an operator = %d, want 200 with the metrics", status)
	}
	req = in.request("GET", "/metrics", "")
	req.Header.Del("Authorization")
	if status, _, _ := send(req); status != http.StatusUnauthorized {
		t.Errorf("/metrics without a key = %d, want 401", status)
	}
	if strings.Contains(in.stderr.String(), "Bearer") {
		t.Error("a key is in the log")
	}
}

// The command line may have the password of a database.
func TestTheAddressForMetricsShowsNoCommandLineAndTheLogWarnsWhereOthersReachIt(t *testing.T) {
	t.Parallel()
	in := start(t, "-data", "", "-metrics", "0.0.0.0:0")
	var found []string
	eventually(t, "the log warns", func() bool {
		found = metricsAddr.FindStringSubmatch(in.stderr.String())
		return found != nil && strings.Contains(in.stderr.String(), "other machines may reach the metrics")
	})
	_, port, _ := net.SplitHostPort(found[1])
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+port+"/debug/pprof/cmdline", nil)
	if err != nil {
		t.Fatal(err)
	}
	if status, body, err := send(req); status != http.StatusNotFound || strings.Contains(string(body), "-metrics") {
		t.Errorf("the command line = %d %s %v, want 404", status, body, err)
	}
}

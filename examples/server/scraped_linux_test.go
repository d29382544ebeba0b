package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/prometheus/mixin"
	"github.com/podyard/podyard/internal/postgrestest"
	"github.com/podyard/podyard/internal/suite"
)

// A scraper is a Prometheus that scrapes a server each second.
type scraper struct {
	*testing.T
	url string
}

// scraped starts a Prometheus that scrapes an address and has the alerts and rules of the mixin. An
// alert fires here when its expression has results for two seconds.
func scraped(t *testing.T, target string) *scraper {
	t.Helper()
	path, err := exec.LookPath("prometheus")
	if err != nil {
		missing(t, "needs Prometheus: "+err.Error())
	}
	dir, own := t.TempDir(), suite.FreeAddress(t)
	quick := regexp.MustCompile(`for: \d+m`).ReplaceAll(mixin.AlertsYAML(), []byte("for: 2s"))
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [alerts.yaml, rules.yaml]\nscrape_configs: [{job_name: podyard, static_configs: [{targets: [%q]}]}]\n", target)
	for name, text := range map[string][]byte{"alerts.yaml": quick, "rules.yaml": mixin.RulesYAML(), "prometheus.yml": []byte(config)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), path, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+own)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	return &scraper{t, "http://" + own}
}

// get reads the data of an answer of Prometheus.
func (s *scraper) get(path string, data any) error {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	_, body, err := send(req)
	if err != nil {
		return err
	}
	a := struct {
		Error string
		Data  any
	}{Data: data}
	if err := json.Unmarshal(body, &a); err != nil || a.Error != "" {
		return fmt.Errorf("%w %s", err, a.Error)
	}
	return nil
}

// series returns how many series a query has.
func (s *scraper) series(query string) (int, error) {
	var a struct{ Result []any }
	err := s.get("/api/v1/query?query="+url.QueryEscape(query), &a)
	return len(a.Result), err
}

// firing returns the alerts that fire, each with its endpoint, or with its cause and name.
func (s *scraper) firing() (list []string) {
	var a struct {
		Alerts []struct {
			State  string
			Labels map[string]string
		}
	}
	if err := s.get("/api/v1/alerts", &a); err != nil {
		return []string{err.Error()}
	}
	for _, x := range a.Alerts {
		if x.State == "firing" {
			list = append(list, x.Labels["alertname"]+" "+x.Labels["endpoint"]+x.Labels["cause"]+" "+x.Labels["name"])
		}
	}
	slices.Sort(list)
	return list
}

// queries are the expressions of all dashboards and rules, by where they are.
func queries() map[string]string {
	list := map[string]string{}
	values := strings.NewReplacer("$__rate_interval", "30s", "$instance", ".*", "$endpoint", ".*", "$host", ".*")
	for name, d := range mixin.Dashboards() {
		for _, p := range d.Panels {
			for _, q := range p.Queries {
				list[name+": "+p.Title+": "+q.Legend] = values.Replace(q.Expr)
			}
		}
	}
	for _, r := range mixin.Rules() {
		list["rules: "+r.Name] = r.Name
	}
	return list
}

// without returns the queries that have no data yet.
func (s *scraper) without() (list []string) {
	for where, query := range queries() {
		if n, err := s.series(query); n == 0 {
			list = append(list, fmt.Sprintf("%s: %s %v", where, query, err))
		}
	}
	slices.Sort(list)
	return list
}

func TestAPrometheusHasDataForEveryDashboardAndTheRightAlertForAWorkerThatFails(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	var postgresql postgrestest.Server
	t.Cleanup(postgresql.Stop)
	for name, c := range map[string]struct {
		args func() []string
		miss *regexp.Regexp // queries of what this store does not measure
	}{
		"Directory": {func() []string { return []string{"-data", t.TempDir()} }, nil},
		"Database": {
			func() []string { return []string{"-data", postgresql.Empty(t), "-local", t.TempDir()} },
			regexp.MustCompile("podyard_store_(commit_|bytes|dead_bytes|damage)"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := file(t, `{"secretKey":"`+strings.Repeat("A", 43)+`=","images":{"local/broken":{"command":["sh","-c","echo no model here; exit 1"]}},
				"endpoints":[{"id":"broken","image":"local/broken","cpu":[{"id":"host","vcpuCount":2}],"workers":{"max":1}}]}`)
			in := start(t, append(c.args(), "-config", config, "-metrics", "127.0.0.1:0")...)
			var found []string
			eventually(t, "the log says where metrics are", func() bool {
				found = metricsAddr.FindStringSubmatch(in.stderr.String())
				return found != nil
			})
			s := scraped(t, found[1])
			get[any](in, "POST", "/v2/pods", `{"name":"x","image":"podyard/web","cpu":{"id":"host","vcpuCount":2}}`, http.StatusCreated)
			get[any](in, "POST", "/v2/broken/run", `{"input":{}}`, http.StatusOK)
			s.untilDashboardsAreFull(in, c.miss)
			s.untilOneFires("PodyardIncident crashLoop broken", "PodyardWorkersLost broken ") // the worker ends again and again
		})
	}
}

// untilDashboardsAreFull gives the server work until every query has data, but for some.
func (s *scraper) untilDashboardsAreFull(in *instance, but *regexp.Regexp) {
	s.Helper()
	var missing []string
	for deadline := time.Now().Add(2 * patience); time.Now().Before(deadline); time.Sleep(time.Second) {
		for _, path := range []string{"/v2/echo/runsync", "/v2/hello/runsync"} {
			get[any](in, "POST", path, `{"input":{"name":"you"}}`, http.StatusOK)
		}
		missing = slices.DeleteFunc(s.without(), func(text string) bool { return but != nil && but.MatchString(text) })
		if len(missing) == 0 {
			return
		}
	}
	s.Errorf("without data:\n%s", strings.Join(missing, "\n"))
}

// untilOneFires waits until an alert fires, and is the only one but for those that may come with it.
// A server that stood still for seconds counts as down until it is asked again.
func (s *scraper) untilOneFires(want string, with ...string) {
	s.Helper()
	var list []string
	for deadline := time.Now().Add(2 * patience); time.Now().Before(deadline); time.Sleep(time.Second) {
		list = slices.DeleteFunc(s.firing(), func(name string) bool { return slices.Contains(with, name) })
		if slices.Equal(list, []string{want}) {
			return
		}
	}
	s.Errorf("%q fire, want %s alone", list, want)
}

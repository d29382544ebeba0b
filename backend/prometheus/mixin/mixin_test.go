package mixin_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/podyard/podyard/backend/prometheus/mixin"
)

var update = flag.Bool("update", false, "write the files anew")

// files returns what is beside the package, by its path.
func files(t *testing.T) map[string][]byte {
	t.Helper()
	list := map[string][]byte{"alerts.yaml": mixin.AlertsYAML(), "rules.yaml": mixin.RulesYAML()}
	for name, d := range mixin.Dashboards() {
		b, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		list[filepath.Join("dashboards", name+".json")] = b
	}
	return list
}

func TestTheFilesAreWhatThePackageMakes(t *testing.T) {
	for name, want := range files(t) {
		if *update {
			if err := os.WriteFile(name, want, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != string(want) {
			t.Errorf("%s is not what the package makes, %v: go test ./backend/prometheus/mixin -update", name, err)
		}
	}
}

// expressions returns all expressions, by where they are.
func expressions() map[string]string {
	list := map[string]string{}
	for name, d := range mixin.Dashboards() {
		for _, p := range d.Panels {
			for i, q := range p.Queries {
				list[fmt.Sprintf("%s/%s/%d", name, p.Title, i)] = q.Expr
			}
		}
	}
	for _, a := range mixin.Alerts() {
		list[a.Name] = a.Expr
	}
	for _, r := range mixin.Rules() {
		list[r.Name] = r.Expr
	}
	return list
}

func TestEveryMetricOfAnExpressionExistsAndEachMetricIsOnADashboard(t *testing.T) {
	b, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	known, used := map[string]string{}, map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(podyard_[a-z_]+)` \\| ([a-z]+) \\|").FindAllStringSubmatch(string(b), -1) {
		known[m[1]] = m[2]
	}
	for where, expr := range expressions() {
		for _, name := range regexp.MustCompile(`podyard_[a-z_]+`).FindAllString(expr, -1) {
			base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			if known[base] == "histogram" {
				name = base
			}
			if used[name] = true; known[name] == "" {
				t.Errorf("%s: there is no metric %s", where, name)
			}
		}
	}
	for name := range known {
		if !used[name] {
			t.Errorf("%s is on no dashboard", name)
		}
	}
}

func TestEachAlertHasASectionForOperators(t *testing.T) {
	b, err := os.ReadFile("../../../docs/trouble.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range mixin.Alerts() {
		if !strings.Contains(string(b), "\n### "+a.Name+"\n") {
			t.Errorf("docs/trouble.md has no section %s", a.Name)
		}
		if !strings.HasSuffix(a.Operating, "#"+strings.ToLower(a.Name)) || a.Summary == "" || a.Severity != "critical" && a.Severity != "warning" && !strings.Contains(a.Expr, "severity") {
			t.Errorf("%+v lacks a runbook, a summary or a severity", a)
		}
	}
}

// promtool runs promtool, or skips the test where there is none.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("PODYARD_CI") == "1" {
			t.Fatal("needs promtool: ", err)
		}
		t.Skip("needs promtool: ", err)
	}
	if out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestPrometheusReadsEveryExpression(t *testing.T) {
	all := expressions()
	var b strings.Builder
	b.WriteString("groups:\n  - name: all\n    rules:\n")
	for i, where := range slices.Sorted(func(yield func(string) bool) {
		for k := range all {
			if !yield(k) {
				return
			}
		}
	}) {
		expr := strings.ReplaceAll(all[where], "$__rate_interval", "5m")
		fmt.Fprintf(&b, "      - record: r%d\n        expr: %q\n", i, expr)
	}
	file := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file, "alerts.yaml", "rules.yaml")
}

func TestAlertsFireWhenTheyShouldAndOnlyThen(t *testing.T) {
	promtool(t, "test", "rules", "alerts_test.yaml")
}

func TestEachAlertIsTested(t *testing.T) {
	b, err := os.ReadFile("alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range mixin.Alerts() {
		if strings.Count(string(b), "alertname: "+a.Name+"\n") < 2 {
			t.Errorf("alerts_test.yaml does not test that %s fires, and that it does not", a.Name)
		}
	}
}

func TestDashboardsAreObjectsThatGrafanaImports(t *testing.T) {
	uids := map[string]bool{}
	for name, d := range mixin.Dashboards() {
		b, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			UID, Title    string
			SchemaVersion int
			Templating    struct{ List []struct{ Name, Type string } }
			Panels        []struct {
				ID      int
				Title   string
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal(b, &got); err != nil || got.UID == "" || got.Title == "" || got.SchemaVersion == 0 || len(got.Panels) != len(d.Panels) || uids[got.UID] {
			t.Errorf("%s: %v, %+v", name, err, got)
		}
		uids[got.UID] = true
		if !slices.ContainsFunc(got.Templating.List, func(v struct{ Name, Type string }) bool { return v.Name == "datasource" }) {
			t.Errorf("%s has no variable datasource", name)
		}
	}
}

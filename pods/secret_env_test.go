package pods_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

// values are secrets of alice.
type values map[string]string

func (v values) SecretValue(_ context.Context, owner, name string) (string, error) {
	switch value, ok := v[name]; {
	case name == "broken":
		return "", problem.New(problem.Unavailable, "the store is away")
	case ok && owner == "alice":
		return value, nil
	}
	return "", problem.New(problem.NotFound, "secret not found")
}

func TestValuesOfSecretsStandInTheirPlaces(t *testing.T) {
	from := values{"a": "1", "A": "2", "x/y.z-0": "3", "loop": "{{ RUNPOD_SECRET_a }}", "dollar": "$1 \\0"}
	for text, want := range map[string]string{
		"":                        "",
		"plain":                   "plain",
		"{{ RUNPOD_SECRET_a }}":   "1",
		"{{RUNPOD_SECRET_a}}":     "1",
		"{{\tRUNPOD_SECRET_a  }}": "1",
		"{{ RUNPOD_SECRET_A }}":   "2",
		"{{ RUNPOD_SECRET_x/y.z-0 }}{{ RUNPOD_SECRET_a }}": "31",
		"<{{ RUNPOD_SECRET_a }}{{ RUNPOD_SECRET_none }}>":  "<1>",
		"{{ RUNPOD_SECRET_loop }}":                         "{{ RUNPOD_SECRET_a }}",
		"{{ RUNPOD_SECRET_dollar }}":                       "$1 \\0",
		"{{ runpod_secret_a }}":                            "{{ runpod_secret_a }}",
		"{{ RUNPOD_SECRET_ }}":                             "{{ RUNPOD_SECRET_ }}",
		"{{ RUNPOD_SECRET_a }":                             "{{ RUNPOD_SECRET_a }",
		"{{{ RUNPOD_SECRET_a }}}":                          "{1}",
		"{{\nRUNPOD_SECRET_a }}":                           "{{\nRUNPOD_SECRET_a }}",
	} {
		env := map[string]string{"V": text, "OTHER": "o"}
		before := maps.Clone(env)
		got, _, err := pods.ExpandSecrets(t.Context(), from, "alice", env)
		if diff := cmp.Diff(map[string]string{"V": want, "OTHER": "o"}, got); diff != "" || err != nil {
			t.Errorf("%q: %v (-want +got):\n%s", text, err, diff)
		}
		if !maps.Equal(before, env) {
			t.Errorf("%q: the settings have changed to %q", text, env)
		}
	}
}

func TestSecretsOfOthersAndUnknownOnesAreEmptyAndNamedOnce(t *testing.T) {
	env := map[string]string{"A": "{{ RUNPOD_SECRET_b }}{{ RUNPOD_SECRET_b }}", "B": "{{ RUNPOD_SECRET_a }}", "C": "{{ RUNPOD_SECRET_b }}"}
	got, missing, err := pods.ExpandSecrets(t.Context(), values{"a": "1"}, "bob", env)
	if diff := cmp.Diff(map[string]string{"A": "", "B": "", "C": ""}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff([]string{"a", "b"}, missing); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	if got, missing, err = pods.ExpandSecrets(t.Context(), nil, "alice", env); err != nil || missing != nil || !maps.Equal(got, env) {
		t.Errorf("without secrets the environment is %q, %q, %v; want it as it was written", got, missing, err)
	}
}

func TestASecretThatIsTooLongForAnEnvironmentIsNamed(t *testing.T) {
	from := values{"small": "s", "long": strings.Repeat("x", 200_000), "half": strings.Repeat("x", 100_000), "fits": strings.Repeat("x", 128<<10-1-len("V="))}
	many := map[string]string{}
	for name := range strings.SplitSeq("ABCDEFGHIJKL", "") {
		many[name] = "{{ RUNPOD_SECRET_half }}"
	}
	for name, env := range map[string]map[string]string{
		`"long"`: {"V": "{{ RUNPOD_SECRET_small }}{{ RUNPOD_SECRET_long }}"},
		`"half"`: {"V": "{{ RUNPOD_SECRET_half }}{{ RUNPOD_SECRET_half }}"},
		`"fits"`: {"V": "{{ RUNPOD_SECRET_fits }}y"},
		"others": many,
	} {
		_, _, err := pods.ExpandSecrets(t.Context(), from, "alice", env)
		if !errors.Is(err, pods.ErrSecretTooLong) || !strings.Contains(err.Error(), name) || len(err.Error()) > 300 {
			t.Errorf("with %s the error is %.400v", name, err)
		}
	}
	if _, _, err := pods.ExpandSecrets(t.Context(), from, "alice", map[string]string{"V": "{{ RUNPOD_SECRET_fits }}"}); err != nil {
		t.Errorf("a variable of the largest size is refused: %v", err)
	}
	if _, _, err := pods.ExpandSecrets(t.Context(), from, "alice", map[string]string{"V": "{{ RUNPOD_SECRET_broken }}"}); problem.KindOf(err) != problem.Unavailable {
		t.Errorf("a store that is away is %v", err)
	}
}

func TestAContainerGetsTheValuesAndNoRecordHasThem(t *testing.T) {
	from := values{"key": "hunter2"}
	var seen *recorder
	w := newTestEnv(t, func(in *envConfig) {
		in.options.EnvSecrets = from
		in.hosts = func(rt pods.Runtime) []pods.Host {
			seen = &recorder{Runtime: rt}
			return pods.SimulatedHosts(in.catalog, seen)
		}
	})
	r := gpuPod()
	r.Env = map[string]string{"KEY": "<{{ RUNPOD_SECRET_key }}>", "NONE": "{{ RUNPOD_SECRET_none }}"}
	p, err := w.Create(t.Context(), "alice", r)
	if err != nil {
		t.Fatal(err)
	}
	w.advance(time.Minute)
	last := func() map[string]string { specs := seen.specs(); return specs[len(specs)-1].Env }
	if env := last(); env["KEY"] != "<hunter2>" || env["NONE"] != "" {
		t.Errorf("the container has KEY %q and NONE %q", env["KEY"], env["NONE"])
	}
	p, err = w.Get(t.Context(), "alice", p.ID)
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprintf("%+v", *p); strings.Contains(text, "hunter2") || p.Config.Env["KEY"] != r.Env["KEY"] || p.Want.Applied.Env["KEY"] != r.Env["KEY"] {
		t.Errorf("the record of the pod is %s", text)
	}
	const line = `secret "none" does not exist: it is empty in the environment`
	if n := strings.Count(fmt.Sprint(p.Journal), line); n != 1 {
		t.Errorf("the system log has the missing secret %d times: %v", n, p.Journal)
	}

	from["key"], from["none"] = "new", strings.Repeat("x", 128<<10)
	w.act(p.ID, pods.Restart)
	w.advance(time.Minute)
	if p, err = w.Get(t.Context(), "alice", p.ID); err != nil || p.Status() != pods.Errored || !strings.Contains(p.Seen.Reason, `"none"`) || strings.Contains(p.Seen.Reason, "xxx") {
		t.Errorf("with a secret that is too long the pod is %s, because %.200s, %v; want an ERROR that names it", p.Status(), p.Seen.Reason, err)
	}
	from["none"] = "short"
	w.act(p.ID, pods.Start)
	w.advance(time.Minute)
	if env := last(); env["KEY"] != "<new>" || env["NONE"] != "short" {
		t.Errorf("the next container has KEY %q and NONE %q", env["KEY"], env["NONE"])
	}
}

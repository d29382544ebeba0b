package process

import (
	"slices"
	"strings"
	"testing"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

func TestOfAUserOnlyWhatTheImageAllowsIsAdmitted(t *testing.T) {
	rt := open(t, t.TempDir(), func(o *Options) {
		o.Images["closed"] = Image{Users: []string{"u"}, Command: []string{"true"}}
		o.Images["none"] = Image{Users: []string{"u"}, AllowArgs: true}
		o.Images["bare"] = Image{Users: []string{"u"}}
		o.Images["open"] = Image{Users: []string{"u"}, Command: []string{"true"}, AllowArgs: true, AllowEnv: []string{"MODEL", "APP_*", "*"}}
		o.Images["some"] = Image{Users: []string{"u"}, Command: []string{"true"}, AllowEnv: []string{"MODEL", "APP_*"}}
		o.Trusted = func(owner string) bool { return owner == "operator" }
	})
	for _, tt := range []struct {
		name string
		spec pods.Spec
		want []string // places
	}{
		{"nothing", pods.Spec{Image: "closed", Owner: "u"}, nil},
		{"args", pods.Spec{Image: "closed", Owner: "u", Args: []string{"a"}}, []string{"/args"}},
		{"an entrypoint", pods.Spec{Image: "open", Owner: "u", Entrypoint: []string{"sh"}}, []string{"/entrypoint"}},
		{"an entrypoint of a trusted owner", pods.Spec{Image: "closed", Owner: "operator", Entrypoint: []string{"sh"}}, []string{"/entrypoint"}},
		{"an entrypoint where there is no program", pods.Spec{Image: "none", Owner: "u", Entrypoint: []string{"sh"}, Args: []string{"a"}}, nil},
		{"an entrypoint where there are no args", pods.Spec{Image: "bare", Owner: "u", Entrypoint: []string{"sh"}}, []string{"/args"}},
		{"a variable", pods.Spec{Image: "closed", Owner: "u", Env: map[string]string{"A": "", "B/~": ""}}, []string{"/env/A", "/env/B~1~0"}},
		{"the platform's variables", pods.Spec{
			Image: "closed", Owner: "u", Env: map[string]string{"A": "", "RUNPOD_POD_ID": ""}, PlatformEnv: []string{"RUNPOD_POD_ID"},
		}, []string{"/env/A"}},
		{"allowed names", pods.Spec{Image: "some", Owner: "u", Env: map[string]string{"MODEL": "", "APP_": "", "APP_X": ""}}, nil},
		{"other names", pods.Spec{Image: "some", Owner: "u", Env: map[string]string{"MODEL_": "", "MODE": "", "APP": "", "model": ""}},
			[]string{"/env/APP", "/env/MODE", "/env/MODEL_", "/env/model"}},
		{"args that are allowed", pods.Spec{Image: "open", Owner: "u", Args: []string{"a"}, Env: map[string]string{"ANY": ""}}, nil},
		{"the program itself", pods.Spec{Image: "closed", Args: []string{"a"}, Env: map[string]string{"LD_PRELOAD": ""}}, nil},
		{"a trusted owner", pods.Spec{Image: "closed", Owner: "operator", Args: []string{"a"}, Env: map[string]string{"LD_PRELOAD": ""}}, nil},
		{"an unknown image, whose pod will end with ERROR", pods.Spec{Image: "nginx", Owner: "u", Args: []string{"a"}, Env: map[string]string{"A": ""}}, nil},
		{"an image of others", pods.Spec{Image: "closed", Owner: "v", Args: []string{"a"}}, []string{"/image"}},
	} {
		var faults problem.Violations
		rt.Admit(tt.spec, &faults)
		doc := problem.Document{}
		if err := faults.Err(nil); err != nil {
			if doc = problem.Of(err); doc.Status != 400 {
				t.Errorf("%s: status %d, want 400", tt.name, doc.Status)
			}
		}
		var got []string
		for _, text := range doc.Errors {
			place, _, _ := strings.Cut(text, ":")
			got = append(got, place)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: refused at %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestVariablesThatSteerProgramsAreNeverAUsers(t *testing.T) {
	rt := open(t, t.TempDir(), func(o *Options) {
		o.Images["open"] = Image{Command: []string{"true"}, AllowEnv: []string{"*"}, Users: []string{"*"}}
	})
	for _, name := range []string{
		"LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "GLIBC_TUNABLES", "GCONV_PATH", "PATH", "HOME", "IFS", "ENV", "BASH_ENV", "SHELLOPTS",
		"PYTHONWARNINGS", "PYTHONPATH", "PYTHONSTARTUP", "BROWSER", "NODE_OPTIONS", "NODE_PATH", "RUBYOPT", "RUBYLIB", "PERL5OPT", "PERL5LIB", "PERLIO", "PHPRC",
		"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH", "DOTNET_STARTUP_HOOKS", "CORECLR_PROFILER_PATH", "GODEBUG", "GOCOVERDIR",
		"GIT_SSH_COMMAND", "GIT_CONFIG_COUNT", "SSH_ASKPASS", "EDITOR", "PAGER", "LESSOPEN", "OPENSSL_CONF", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "https_proxy", "HTTP_PROXY",
		"CUDA_INJECTION64_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NCCL_NET_PLUGIN", "OMP_TOOL_LIBRARIES", "VK_LAYER_PATH", "GTK_MODULES", "QT_PLUGIN_PATH",
		"PODYARD_MARK", "PODYARD_MOUNT_0", "PODYARD_LAUNCH", "RUNPOD_WEBHOOK_GET_JOB", "RUNPOD_AI_API_KEY", "KUBECONFIG", "DOCKER_HOST", "NOTIFY_SOCKET",
	} {
		var faults problem.Violations
		rt.Admit(pods.Spec{Image: "open", Owner: "u", Env: map[string]string{name: "x"}}, &faults)
		if !faults.Has("/env/" + name) {
			t.Errorf("%s is let through where all variables are", name)
		}
	}
	for _, name := range []string{"MODEL", "HF_TOKEN", "OPENAI_API_KEY", "GOOGLE_API_KEY", "RUNPOD_INIT_TIMEOUT", "LOG_LEVEL", "ENVIRONMENT", "PATHOLOGY"} {
		if steers(name) {
			t.Errorf("%s is taken for one that steers programs", name)
		}
	}
}

func TestAnImageThatAllowsAVariableThatSteersIsRefused(t *testing.T) {
	for _, entry := range []string{"", "A=B", "*A", "A*B", "LD_PRELOAD"} {
		if CheckAllowEnv(entry) == nil {
			t.Errorf("the entry %q is taken", entry)
		}
	}
	_, err := Open(t.TempDir(), &Options{Images: map[string]Image{"i": {Command: []string{"true"}, AllowEnv: []string{"PYTHONPATH"}}}})
	if err == nil || !strings.Contains(err.Error(), "PYTHONPATH") {
		t.Errorf("Open = %v, want it to name the variable", err)
	}
}

// A pod may be older than the entry of its image.
func TestWhatIsNotAdmittedDoesNotStart(t *testing.T) {
	rt := open(t, t.TempDir(), func(o *Options) { o.Images["closed"] = Image{Command: []string{"/bin/sh", "-c"}} })
	s := spec("old", pods.Spec{Image: "closed", Owner: "u", Args: []string{"echo I run"}, Env: map[string]string{"LD_PRELOAD": "/x"}})
	ensure(t, rt, s)
	got := await(t, rt, "old", "failure", phase(pods.PhaseFailed))
	if !strings.Contains(got.Reason, "/env/LD_PRELOAD") || !strings.Contains(got.Reason, "/args") {
		t.Errorf("Reason = %q, want it to name what was refused", got.Reason)
	}
}

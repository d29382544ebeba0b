package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/podyard/podyard/examples/server/version"
	"github.com/podyard/podyard/internal/enginetest"
)

// A composeFile is what this test reads of a file for docker compose. A member that it does not know
// is an error, so that none is left out.
type composeFile struct {
	Services map[string]composeService
	Volumes  map[string]any
}

type composeService struct {
	Image       string
	Command     []string
	Environment map[string]string
	Ports       []string
	Volumes     []string
	ReadOnly    bool                                  `yaml:"read_only"`
	CapDrop     []string                              `yaml:"cap_drop"`
	SecurityOpt []string                              `yaml:"security_opt"`
	StopGrace   string                                `yaml:"stop_grace_period"`
	Restart     string                                `yaml:"restart"`
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	Healthcheck *struct {
		Test     []string
		Interval string
		Retries  int
		Start    string `yaml:"start_period"`
	}
}

func readCompose(t *testing.T) (f composeFile) {
	t.Helper()
	in, err := os.Open("../../examples/compose/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	d := yaml.NewDecoder(in)
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestTheComposeFileParsesAndUsesThisVersion(t *testing.T) {
	f := readCompose(t)
	for _, name := range []string{"podyard", "postgres", "prometheus"} {
		if f.Services[name].Image == "" {
			t.Errorf("the file has no service %s with an image", name)
		}
	}
	if image := f.Services["podyard"].Image; image != "podyard:"+version.Number {
		t.Errorf("the image is %s", image)
	}
}

// A stack is the services of the compose file as containers of one engine.
type stack struct {
	t       *testing.T
	do      func(...string) string
	file    composeFile
	network string
	env     map[string]string
	dir     string
	ids     map[string]string
}

// newStack loads the images of the file. Those of PostgreSQL and Prometheus are stand-ins with the
// programs of this machine, so that no registry is needed.
func newStack(t *testing.T, kind string) *stack {
	t.Helper()
	image := dist(t, "podyard-VERSION-linux-amd64.image.tar")
	s := &stack{t: t, do: engine(t, kind), file: readCompose(t), network: "compose-" + kind, dir: t.TempDir(), ids: map[string]string{}, env: map[string]string{
		"PODYARD_API_KEY": "key-of-the-compose-test", "POSTGRES_PASSWORD": "secret", "PODYARD_SECRET_KEY": base64.StdEncoding.EncodeToString(make([]byte, 32)),
	}}
	s.do("load", "-i", image)
	s.standIn("postgres", postgresStandIn)
	s.standIn("prometheus", prometheusStandIn)
	return s
}

// composeProgram returns the command of Docker Compose: a program, or a plugin of docker.
func composeProgram(t *testing.T) []string {
	t.Helper()
	if _, err := exec.LookPath("docker-compose"); err == nil {
		return []string{"docker-compose"}
	}
	if exec.CommandContext(t.Context(), "docker", "compose", "version").Run() != nil {
		missing(t, "docker-compose")
	}
	return []string{"docker", "compose"}
}

// override mounts what the stand-ins are made of.
const override = `services:
  postgres: {volumes: ["/usr:/usr:ro"]}
  prometheus: {volumes: ["/usr:/usr:ro"]}
`

// compose returns Docker Compose with the file of this repository.
func (s *stack) compose(address string) func(args ...string) string {
	s.t.Helper()
	program, more := composeProgram(s.t), filepath.Join(s.dir, "stand-ins.yaml")
	if err := os.WriteFile(more, []byte(override), 0o600); err != nil {
		s.t.Fatal(err)
	}
	env := append(os.Environ(), "HOME="+s.dir, "DOCKER_HOST="+address, "COMPOSE_PROJECT_NAME="+s.network, "COMPOSE_HTTP_TIMEOUT=300")
	for k, v := range s.env {
		env = append(env, k+"="+v)
	}
	program = append(program, "-f", "../../examples/compose/compose.yaml", "-f", more)
	return func(args ...string) string {
		s.t.Helper()
		return strings.TrimSpace(output(s.t, env, "", program[0], slices.Concat(program[1:], args)...))
	}
}

// Ports are those of the file: the tests have a network of their own.
func TestDockerComposeRunsTheComposeFile(t *testing.T) {
	s := newStack(t, "dockerd")
	compose := s.compose(enginetest.Require(t, "dockerd").Address())
	if out := compose("config"); !strings.Contains(out, "PODYARD_API_KEY: "+s.env["PODYARD_API_KEY"]) {
		t.Errorf("it reads the file as\n%s", out)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(compose("ps"), "\n", compose("logs", "--tail", "30"))
		}
		compose("down", "-v")
		mine := "label=com.docker.compose.project=" + s.network
		if left := s.do("ps", "-aq", "--filter", mine) + s.do("volume", "ls", "-q", "--filter", mine); left != "" {
			t.Errorf("after down -v there is still %s", left)
		}
	})
	compose("up", "-d")
	for name := range s.file.Services {
		s.ids[name] = compose("ps", "-q", name)
	}
	s.works()
}

// Podman leaves health to timers of systemd, and Compose waits for it: here the test starts each service as
// the file says, in the order of what it depends on, and they find each other by their names. Ports of
// this machine are free ones.
func TestTheServicesOfTheComposeFileRunTogetherOnPodman(t *testing.T) {
	s := newStack(t, "podman")
	s.do("network", "create", s.network)
	t.Cleanup(func() { s.do("network", "rm", s.network) })
	for len(s.ids) < len(s.file.Services) {
		started := len(s.ids)
		for name, x := range s.file.Services {
			if s.ids[name] == "" && s.ready(x) {
				s.start(name, x)
			}
		}
		if len(s.ids) == started {
			time.Sleep(300 * time.Millisecond)
		}
	}
	s.works()
}

// standIn makes an image with the name of the file, of programs of this machine: its /usr is mounted
// when the container is started.
func (s *stack) standIn(service, script string) {
	s.t.Helper()
	root := filepath.Join(s.dir, service)
	check := func(err error) {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	for _, dir := range []string{"etc", "tmp", "usr", "var/lib/postgresql/data", "prometheus", "run"} {
		check(os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	check(os.Chmod(filepath.Join(root, "tmp"), 0o777))
	check(os.Chmod(filepath.Join(root, "prometheus"), 0o777))
	for _, name := range []string{"bin", "lib", "lib64", "sbin"} {
		check(os.Symlink("usr/"+name, filepath.Join(root, name)))
	}
	check(os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("root:x:0:0::/:/bin/sh\npostgres:x:999:999::/:/bin/sh\n"), 0o644))
	check(os.WriteFile(filepath.Join(root, "start"), []byte(script), 0o755))
	tar := root + ".tar"
	output(s.t, os.Environ(), root, "tar", "-cf", tar, ".")
	programs, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	check(err)
	path := "ENV PATH=" + strings.Join(append(programs, "/usr/sbin", "/usr/bin"), ":")
	s.do("import", "--change", path, "--change", "ENV PGHOST=127.0.0.1", "--change", `CMD ["/bin/sh", "/start"]`, tar, s.file.Services[service].Image)
}

// postgresStandIn does what the image does with its variables.
const postgresStandIn = `set -e
bin=$(echo /usr/lib/postgresql/*/bin); data=/var/lib/postgresql/data
chown postgres $data; echo "$POSTGRES_PASSWORD" >/tmp/password; chown postgres /tmp/password
as() { setpriv --reuid=999 --regid=999 --clear-groups "$@"; }
[ -e $data/PG_VERSION ] || as $bin/initdb -D $data -U "$POSTGRES_USER" -A scram-sha-256 --pwfile=/tmp/password -N -E UTF8 --locale=C
echo "host all all all scram-sha-256" >>$data/pg_hba.conf
as $bin/postgres --single -D $data postgres <<-S || true
CREATE DATABASE "$POSTGRES_DB"
S
exec setpriv --reuid=999 --regid=999 --clear-groups $bin/postgres -D $data -c listen_addresses='*' -k /tmp
`

const prometheusStandIn = `exec /usr/bin/prometheus --config.file=/etc/prometheus/prometheus.yml --storage.tsdb.path=/prometheus
`

// ready reports whether what a service depends on is as the file wants it.
func (s *stack) ready(x composeService) bool {
	for name, d := range x.DependsOn {
		id := s.ids[name]
		if id == "" {
			return false
		}
		if d.Condition != "service_healthy" {
			s.t.Fatalf("this test does not know the condition %q", d.Condition)
		}
		if out := s.do("exec", id, "/bin/sh", "-c", strings.Join(s.file.Services[name].Healthcheck.Test[1:], " ")+" || true"); !strings.Contains(out, "accepting connections") {
			return false
		}
	}
	return true
}

var variable = regexp.MustCompile(`\$\{([A-Z_]+)(:\?[^}]*)?\}`)

// expand puts the variables in, as compose does.
func (s *stack) expand(text string) string {
	return variable.ReplaceAllStringFunc(text, func(m string) string {
		value := s.env[variable.FindStringSubmatch(m)[1]]
		if value == "" {
			s.t.Errorf("the file uses the variable %s, which its first lines do not name", m)
		}
		return value
	})
}

func (s *stack) start(name string, x composeService) {
	s.t.Helper()
	args := []string{"run", "-d", "--network", s.network, "--network-alias", name, "--restart", x.Restart}
	for k, v := range x.Environment {
		args = append(args, "-e", k+"="+s.expand(v))
	}
	for _, p := range x.Ports {
		parts := strings.Split(p, ":")
		args = append(args, "-p", parts[0]+"::"+parts[2])
	}
	for _, v := range x.Volumes {
		if from, ok := strings.CutPrefix(v, "./"); ok {
			path, err := filepath.Abs("../../examples/compose")
			if err != nil {
				s.t.Fatal(err)
			}
			v = filepath.Join(path, from)
		} else {
			v = s.network + "-" + v
			volume, _, _ := strings.Cut(v, ":")
			s.t.Cleanup(func() { s.do("volume", "rm", "-f", volume) })
		}
		args = append(args, "-v", v)
	}
	if name != "podyard" {
		args = append(args, "-v", "/usr:/usr:ro")
	}
	if x.ReadOnly {
		args = append(args, "--read-only")
	}
	for _, c := range x.CapDrop {
		args = append(args, "--cap-drop", c)
	}
	for _, o := range x.SecurityOpt {
		args = append(args, "--security-opt", strings.TrimSuffix(o, ":true"))
	}
	id := s.do(append(append(args, x.Image), x.Command...)...)
	id = id[strings.LastIndex(id, "\n")+1:]
	s.ids[name] = id
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("the log of %s:\n%s", name, s.do("logs", "--tail", "30", id))
		}
		s.do("rm", "-f", id)
	})
}

// url is where a port of a service is on this machine.
func (s *stack) url(name, port string) string {
	out := s.do("port", s.ids[name], port)
	first, _, _ := strings.Cut(out, "\n")
	return "http://" + first
}

// works runs a job on the server, and looks for the server in Prometheus.
func (s *stack) works() {
	s.t.Helper()
	if p := s.file.Services["podyard"].Ports; !slices.Equal(p, []string{"127.0.0.1:8080:8080"}) {
		s.t.Errorf("the ports are %q", p)
	}
	api := s.url("podyard", "8080/tcp")
	until(s.t, "a job runs", func() bool {
		return strings.Contains(s.ask("POST", api+"/v2/echo/runsync", `{"input":{"in":"compose"}}`), `"COMPLETED"`)
	})
	until(s.t, "Prometheus reads the metrics of the server", func() bool {
		return strings.Contains(s.ask("GET", s.url("prometheus", "9090/tcp")+"/api/v1/query?query=up%7Bjob%3D%22podyard%22%7D%3D%3D1", ""), `"podyard:9100"`)
	})
	job := s.ask("POST", api+"/v2/idle-of-nobody/run", `{"input":{}}`)
	if !strings.Contains(job, "404") && !strings.Contains(job, "not found") {
		s.t.Errorf("an endpoint that is not there answers %s", job)
	}
	s.do("stop", s.ids["podyard"])
	if code := s.do("inspect", "--format", "{{.State.ExitCode}}", s.ids["podyard"]); code != "0" {
		s.t.Errorf("the server ends with %s", code)
	}
}

// ask returns the answer to a request, or why there is none.
func (s *stack) ask(method, url, body string) string {
	r, err := http.NewRequestWithContext(s.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	r.Header.Set("Authorization", "Bearer "+s.env["PODYARD_API_KEY"])
	r.Header.Set("Content-Type", "application/json")
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return err.Error()
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	return fmt.Sprint(a.StatusCode, " ", string(b), err)
}

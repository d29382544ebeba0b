package docker

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestTheEngineOfTheCurrentContextIsFound(t *testing.T) {
	const (
		name = "desktop-linux"
		// The SHA-256 of the name.
		meta = "contexts/meta/fe9c6bd7a66301f49ca9b6a70b217107cd1284598bfc254700c989b916da791e/meta.json"
	)
	socket := `{"Name":"desktop-linux","Metadata":{},"Endpoints":{"docker":{"Host":"unix:///Users/a/.docker/run/docker.sock","SkipTLSVerify":false}}}`
	for _, tt := range []struct {
		name  string
		env   map[string]string
		files map[string]string
		want  string
	}{
		{"the current one", nil, map[string]string{"config.json": `{"currentContext":"` + name + `"}`, meta: socket}, "unix:///Users/a/.docker/run/docker.sock"},
		{"that of the environment", map[string]string{"DOCKER_CONTEXT": name}, map[string]string{meta: socket}, "unix:///Users/a/.docker/run/docker.sock"},
		{"DOCKER_HOST comes first", map[string]string{"DOCKER_HOST": "tcp://a:1"}, map[string]string{"config.json": `{"currentContext":"` + name + `"}`, meta: socket}, "tcp://a:1"},
		{"one on another machine is not used", map[string]string{"DOCKER_CONTEXT": name}, map[string]string{meta: `{"Endpoints":{"docker":{"Host":"ssh://a"}}}`}, ""},
		{"one that is gone", map[string]string{"DOCKER_CONTEXT": name}, nil, ""},
		{"the default one", nil, map[string]string{"config.json": `{"currentContext":"default"}`}, ""},
		{"a file that is damaged", nil, map[string]string{"config.json": `{`}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home := homeOf(t)
			for k, v := range tt.env {
				t.Setenv(k, v)
			}
			for path, text := range tt.files {
				path = filepath.Join(home, ".docker", path)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := Address(); got != tt.want {
				t.Errorf("the engine is looked for at %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTheSocketOfDockerDesktopIsFound(t *testing.T) {
	if _, err := os.Stat("/var/run/docker.sock"); err == nil {
		t.Skip("this machine has the default socket, which comes first")
	}
	home := homeOf(t)
	path := filepath.Join(home, desktopSocket)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Skip(err) // Windows, or a long path
	}
	defer l.Close()
	if got, want := Address(), "unix://"+path; got != want {
		t.Errorf("the engine is looked for at %q, want %q", got, want)
	}
}

// homeOf is a home directory without settings of Docker.
func homeOf(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	for _, name := range []string{"DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT"} {
		t.Setenv(name, "")
	}
	return home
}

package main

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/podyard/podyard/internal/postgrestest"
	"github.com/podyard/podyard/internal/suite"
)

func TestPodsOfTwoServersOverADatabase(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	var postgresql postgrestest.Server
	t.Cleanup(postgresql.Stop)
	url, config := postgresql.Empty(t), secretConfig(t)
	args := func(name string) []string {
		return []string{"-addr", "127.0.0.1:0", "-data", url, "-local", t.TempDir(), "-name", name, "-config", config}
	}
	argsB := args("b")
	b := startCommand(t, command(t, nil, argsB...))
	key := strings.TrimPrefix(b.line(), "key: ")
	b.key = key
	a := startCommand(t, command(t, nil, args("a")...))
	a.key = key

	p := b.web()
	a.follow(p.ID).await("system: container is healthy")
	eventually(t, "the pod is RUNNING at a", func() bool { return a.pod(p.ID).Status == "RUNNING" })
	a.follow(p.ID).await("container: ")
	a.act(p.ID, "stop")
	eventually(t, "the pod is EXITED at b", func() bool { return b.pod(p.ID).Status == "EXITED" })
	a.act(p.ID, "start")
	eventually(t, "the pod runs again", func() bool { return b.pod(p.ID).Status == "RUNNING" })
	pids := processes(t, p.ID)

	b.end(syscall.SIGKILL)
	eventually(t, "the log is 503 at a while b is away", func() bool {
		code, _ := a.do("GET", "/v2/pods/"+p.ID+"/logs?source=container", "")
		return code == http.StatusServiceUnavailable
	})
	b = startCommand(t, command(t, nil, argsB...))
	b.key = key
	a.act(p.ID, "terminate")
	eventually(t, "the processes are gone", func() bool { return len(processes(t, p.ID)) == 0 })
	if len(pids) == 0 {
		t.Error("the pod had no process")
	}
	a.stop()
	b.stop()
}

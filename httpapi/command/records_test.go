package command_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/podyard/podyard/httpapi/apitest"
	"github.com/podyard/podyard/httpapi/client"
	"github.com/podyard/podyard/httpapi/command"
)

// made returns the id in the JSON that a command prints.
func (s *shell) made(args ...string) string {
	s.t.Helper()
	var v struct{ ID string }
	if err := json.Unmarshal([]byte(s.must(append(args, "-o", "json")...)), &v); err != nil || v.ID == "" {
		s.t.Fatalf("%v: no id: %v", args, err)
	}
	return v.ID
}

// has wants the output of a command to have words.
func (s *shell) has(line string, words ...string) {
	s.t.Helper()
	out := s.must(strings.Fields(line)...)
	for _, w := range words {
		if !strings.Contains(out, w) {
			s.t.Errorf("%s prints %q, want %q in it", line, out, w)
		}
	}
	var v any
	if out := s.must(append(strings.Fields(line), "-o", "json")...); json.Unmarshal([]byte(out), &v) != nil {
		s.t.Errorf("%s -o json prints %q, which is no JSON", line, out)
	}
}

func TestCommandsMakeListAndDeleteRecordsOfEachKind(t *testing.T) {
	t.Parallel()
	srv := apitest.Start(t)
	s := on(t, srv)
	volume := s.made("volumes", "create", "-name", "models", "-size", "20", "-data-center", dataCenter(s))
	s.has("volumes list", "models", "20")
	s.must("volumes", "resize", volume, "-size", "30")
	s.has("volumes list -owner *", "OWNER", "30")
	s.refused(command.ExitUsage, "say what changes", "volumes", "resize", volume)

	template := s.made("templates", "create", "-file", `{"name":"web","image":"nginx"}`)
	s.has("templates list", "web", "nginx", "pods")
	s.refused(command.ExitUsage, "-file", "templates", "create", "-file", `{`)

	s.refused(command.ExitFailed, "standard input, which is empty", "registries", "create", "-name", "ghcr", "-username", "alice")
	s.stdin = "secret-of-alice\nmore\n"
	registry := s.made("registries", "create", "-name", "ghcr", "-username", "alice")
	if out := s.must("registries", "list", "-o", "json"); strings.Contains(out, "secret-of-alice") || !strings.Contains(out, "ghcr") {
		t.Errorf("the credentials are %s, want ghcr and no secret", out)
	}
	s.stdin = ""

	endpoint := s.made("endpoints", "create", "-name", "captions", "-image", "img:1", "-cpu", "cpu3c", "-max", "3", "-env", "A=b")
	s.has("endpoints list", "captions", "img:1", "0-3")
	s.must("endpoints", "update", endpoint, "-image", "img:2", "-max", "2")
	s.has("endpoints get "+endpoint, "img:2", "0-2")
	s.refused(command.ExitFailed, "name", "endpoints", "create")

	batch := makeBatch(t, srv, endpoint)
	s.has("batches list "+endpoint, batch, "DRAFT")
	s.has("batches get "+endpoint+" "+batch, "2, of which 0 run")
	s.has("batches start "+endpoint+" "+batch, "FINALIZED")
	s.has("batches cancel "+endpoint+" "+batch, "CANCELLED")
	s.refused(command.ExitNotFound, "nope", "batches", "get", endpoint, "nope")
	s.has("webhooks list "+endpoint, "JOB", "LAST ANSWER")
	s.refused(command.ExitNotFound, "nope", "webhooks", "resend", endpoint, "nope")

	for _, line := range []string{"endpoints delete " + endpoint, "templates delete " + template, "registries delete " + registry, "volumes delete " + volume} {
		if out := s.must(strings.Fields(line)...); !strings.Contains(out, "deleted") {
			t.Errorf("%s prints %q", line, out)
		}
	}
}

// dataCenter is one of the server's.
func dataCenter(s *shell) string {
	s.t.Helper()
	var pods []struct{ DataCenterID string }
	s.must("pods", "create", "-name", "p", "-image", "nginx", "-cpu", "cpu3c")
	if err := json.Unmarshal([]byte(s.must("pods", "list", "-o", "json")), &pods); err != nil || len(pods) == 0 {
		s.t.Fatalf("no pod to ask where it is: %v", err)
	}
	return pods[0].DataCenterID
}

// makeBatch makes a draft of two requests.
func makeBatch(t *testing.T, srv *apitest.Server, endpoint string) string {
	t.Helper()
	c, err := client.New(&client.Options{URL: srv.URL(), Key: client.Secret(srv.Key)})
	if err != nil {
		t.Fatal(err)
	}
	request := client.JobRequest{Input: map[string]int{"n": 1}}
	b, err := c.Jobs(endpoint).CreateBatch(t.Context(), client.Batch{}, false, request, request)
	if err != nil {
		t.Fatal(err)
	}
	return b.ID
}

func TestAnOperatorSeesUsersAuditAndBillsAndErasesOnlyWithYes(t *testing.T) {
	t.Parallel()
	srv := apitest.Start(t)
	s := on(t, srv)
	user := "carol"
	s.must("keys", "make", "-user", user, "-scopes", "pods:read")
	s.has("users list", "USER", user)
	s.has("audit -user "+user, "TIME", "WHAT")
	s.refused(command.ExitDenied, "", "audit", "-key", "of-nobody")
	if out := s.must("audit", "-refused", "-since", "2000-01-01T00:00:00Z"); !strings.Contains(out, "listAudit") || strings.Contains(out, "createKey") {
		t.Errorf("audit -refused shows %s, want the request with a wrong key and nothing that was done", out)
	}
	if out := s.must("audit", "-since", "2200-01-01T00:00:00Z", "-o", "json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("the audit log since a time that has not come: %s", out)
	}
	s.has("billing -by hour -since 2h -of pods", "FROM", "in all")
	s.refused(command.ExitUsage, "must be pods, clusters, endpoints or volumes", "billing", "-of", "cats")
	s.refused(command.ExitUsage, "add -yes if you mean it", "users", "erase", user)
	if out := s.must("users", "erase", user, "-yes"); !strings.Contains(out, "carol is erased: ") {
		t.Errorf("users erase prints %q", out)
	}
	if out := s.must("keys", "list", "-owner", user, "-o", "json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("the keys of an erased user are %s", out)
	}
}

func TestTheQueueOfAnEndpointIsChangedByFlags(t *testing.T) {
	t.Parallel()
	srv := apitest.Start(t)
	srv.Queue("waits")
	s := on(t, srv)
	s.has("queue waits", "running jobs of a key", "none")
	s.must("queue", "waits", "-per-key", "2", "-total", "7", "-dead-letter", "2d")
	s.has("queue waits", "running jobs of a key   2", "running jobs in all     7", "48h0m0s")
	s.must("queue", "waits", "-per-key", "none")
	s.has("queue waits", "running jobs of a key   none", "running jobs in all     7")
	s.refused(command.ExitUsage, `must be a number, or "none"`, "queue", "waits", "-per-key", "many")
	s.refused(command.ExitFailed, "total", "queue", "waits", "-total", "0")
	s.refused(command.ExitNotFound, "", "queue", "nowhere")
	s.must("queue", "waits", "-rate", "100/1m", "-per-key-rate", "5/1s", "-limits", "a=2,1/1h", "-limits", "b=3")
	s.has("queue waits", "starts in all           100 in 1m0s", "starts of a key         5 in 1s", "starts of a user        none", "keys with own limits    2")
	s.must("queue", "waits", "-rate", "none", "-limits", "a=none")
	s.has("queue waits", "starts in all           none", "keys with own limits    1")
	s.refused(command.ExitUsage, `must be a number and a duration like 5/1s, or "none"`, "queue", "waits", "-per-user-rate", "5")
	s.refused(command.ExitUsage, `must be a key and its limits, like name=5/1s`, "queue", "waits", "-limits", "a")
	s.refused(command.ExitFailed, "perKeyRate/per", "queue", "waits", "-per-key-rate", "5/1ms")
}

func TestAnOperatorFindsTheLogOfAUsersEndpointByItsID(t *testing.T) {
	t.Parallel()
	srv := apitest.Start(t)
	s := on(t, srv)
	var key struct{ Key string }
	if err := json.Unmarshal([]byte(s.must("keys", "make", "-user", "carol", "-scopes", "*", "-o", "json")), &key); err != nil {
		t.Fatal(err)
	}
	carol := on(t, srv)
	carol.env["PODYARD_API_KEY"] = key.Key
	endpoint := carol.made("endpoints", "create", "-name", "hers", "-image", "img", "-cpu", "cpu3c")
	s.refused(command.ExitNotFound, endpoint+" has no worker at this moment", "logs", endpoint)
	s.refused(command.ExitNotFound, "no pod, no worker and no endpoint nothere", "logs", "nothere")
}

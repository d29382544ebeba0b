package httpapi_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/sshkeys"
)

func TestAPodIsEnteredByAnAPIKeyOfItsOwnerOrAnOperatorThatMayChangeIt(t *testing.T) {
	fixed, err := httpapi.NewKeys([]httpapi.Key{
		{Secret: "writes", User: "alice", Scopes: []string{"pods:write"}}, {Secret: "reads", User: "alice", Scopes: []string{"pods:read"}},
		{Secret: "operates", User: "root", Scopes: []string{"*", "operator"}}, {Secret: "bobs", User: "bob", Scopes: []string{"*"}},
		{Secret: "old", User: "alice", Scopes: []string{"*"}, Expires: time.Unix(1, 0)},
	}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	made := accounts.New(memory.NewAccounts(), nil)
	if err := made.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	operator := accounts.Caller{User: "root", Scopes: []httpapi.Permission{{Area: "operator"}}}
	stored, _, err := made.Create(t.Context(), operator, accounts.CreateRequest{User: "alice", Scopes: []string{"pods:write"}})
	if err != nil {
		t.Fatal(err)
	}
	auth := httpapi.AnyOf(fixed, httpapi.StoredKeys(made))
	enters := func(name string) bool {
		t.Helper()
		_, err := httpapi.Entering(t.Context(), auth, "alice", name)
		if err != nil && !errors.Is(err, httpapi.ErrKey) {
			t.Error(err)
		}
		if may := httpapi.MayEnter(t.Context(), auth, "alice", name); may != (err == nil) {
			t.Errorf("MayEnter of %s = %v, Entering = %v", name, may, err)
		}
		return err == nil
	}
	for secret, want := range map[string]bool{"writes": true, "reads": false, "operates": true, "bobs": false, "old": false, "nobodys": false} {
		if got := enters(accounts.DigestOf(secret).String()); got != want {
			t.Errorf("a key that %s enters = %v, want %v", secret, got, want)
		}
	}
	if enters("") || !enters(stored.ID) {
		t.Error("a key without a name enters, or one that was made over the API does not")
	}
	if err := made.Delete(t.Context(), operator, stored.ID); err != nil || enters(stored.ID) {
		t.Errorf("a key that was deleted enters (%v)", err)
	}
}

func TestTheRecordOfAPodSaysHowSSHReachesIt(t *testing.T) {
	auth, err := httpapi.NewKeys([]httpapi.Key{{Secret: "k", User: "alice", Scopes: []string{"*"}}}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	c := catalog.Sample()
	p, err := pods.New(memory.NewPods(), c, pods.SimulatedHosts(c, memory.NewRuntime(nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	at, keys := &httpapi.PodSSH{Host: "pods.example", Port: 2222, Secret: []byte("a secret")}, sshkeys.New(memory.NewSSHKeys())
	h := httpapi.New(httpapi.Services{Pods: p, SSHKeys: keys}, &httpapi.Options{Auth: auth, PodSSH: at})
	do := func(method, path, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer k")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	var pod struct {
		ID  string
		SSH struct {
			Proxy struct {
				Host, Username, Command string
				Port                    int
			}
		}
	}
	if w := do("POST", "/v2/pods", `{"name":"a","image":"i","cpu":{"id":"`+c.CPUs[0].ID+`","vcpuCount":2}}`); w.Code != http.StatusCreated || json.Unmarshal(w.Body.Bytes(), &pod) != nil {
		t.Fatalf("a pod = %d %s", w.Code, w.Body)
	}
	got, user := pod.SSH.Proxy, at.User(pod.ID)
	if got.Host != "pods.example" || got.Port != 2222 || got.Username != user || got.Command != "ssh "+user+"@pods.example -p "+strconv.Itoa(got.Port) {
		t.Errorf("ssh.proxy = %+v", got)
	}
	if id, ok := at.PodOf(user); !ok || id != pod.ID {
		t.Errorf("the pod of %s = %q, %v", user, id, ok)
	}
	other := httpapi.PodSSH{Secret: []byte("another secret")}
	for _, name := range []string{"", "-", pod.ID, pod.ID + "-", user + "0", other.User(pod.ID)} {
		if id, ok := at.PodOf(name); ok {
			t.Errorf("%q is the name of the pod %q", name, id)
		}
	}
	if w := do("PUT", "/v2/account/ssh-keys", `{"keys":["ssh-ed25519 AAAA a"]}`); w.Code != http.StatusOK {
		t.Fatalf("a key = %d %s", w.Code, w.Body)
	}
	list, err := keys.Keys(t.Context(), "alice")
	if err != nil || len(list) != 1 || list[0].By != accounts.DigestOf("k").String() {
		t.Errorf("SSH keys = %+v, %v; want the API key that has put it", list, err)
	}
}

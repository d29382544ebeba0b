package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/podyard/podyard/httpapi"
)

// owned creates a record of alice of each kind. It returns the path of each.
func owned(w *testAPI) map[string]string {
	w.t.Helper()
	made := func(path, body, key string) string {
		return path + "/" + w.want(http.StatusCreated, "POST", path, body, as(key)).field("id")
	}
	endpoint := made("/v2/serverless", cpuEndpoint, alicesEndpoints)
	private := "/v2/" + strings.TrimPrefix(endpoint, "/v2/serverless/")
	job := w.want(http.StatusOK, "POST", "/v2/idle/run", `{"input":{"of":"alice"}}`, as(alicesEndpoints)).field("id")
	return map[string]string{
		"pod":        made("/v2/pods", `{"name":"alices","image":"i","cpu":{"id":"cpu3c","vcpuCount":2}}`, aliceFree),
		"cluster":    made("/v2/clusters", trainingCluster, aliceFree),
		"volume":     "/v2/network-volumes/vol1",
		"template":   made("/v2/templates", `{"name":"alices","image":"i"}`, aliceFree),
		"registry":   made("/v2/registries", `{"name":"alices","username":"u","password":"p"}`, aliceFree),
		"endpoint":   endpoint,
		"workers":    endpoint + "/workers",
		"releases":   endpoint + "/releases",
		"decisions":  endpoint + "/decisions",
		"health":     private + "/health",
		"requests":   private + "/requests",
		"job":        "/v2/idle/status/" + job,
		"why":        "/v2/serverless/idle/decisions?jobId=" + job,
		"deliveries": "/v2/serverless/idle/deliveries/" + job,
		"private":    private + "/status/" + w.want(http.StatusOK, "POST", private+"/run", `{"input":{}}`, as(alicesEndpoints)).field("id"),
	}
}

func TestAnOperatorFindsEverythingByItsIDAndTheAnswerNamesTheOwner(t *testing.T) {
	withEndpoints(t, nil, func(w *testAPI) {
		for kind, path := range owned(w) {
			if a := w.call("GET", path, "", as(operatorFree)); a.status != http.StatusOK || a.header.Get("Podyard-Owner") != "alice" {
				t.Errorf("GET of a %s by an operator = %d %s of %q, want 200 of alice", kind, a.status, a.body, a.header.Get("Podyard-Owner"))
			}
			if a := w.call("GET", path, "", as(adminFree)); a.status != http.StatusNotFound || a.header.Get("Podyard-Owner") != "" {
				t.Errorf("GET of a %s of alice with * = %d %s of %q, want 404 of nobody", kind, a.status, a.body, a.header.Get("Podyard-Owner"))
			}
		}
		for _, path := range []string{"/v2/pods/nothere", "/v2/serverless/nothere", "/v2/idle/status/nothere", "/v2/nowhere/health"} {
			if a := w.want(http.StatusNotFound, "GET", path, "", as(operatorFree)); a.header.Get("Podyard-Owner") != "" {
				t.Errorf("GET %s names the owner %q", path, a.header.Get("Podyard-Owner"))
			}
		}
	})
}

func TestWhatAnOperatorChangesStaysItsOwners(t *testing.T) {
	withEndpoints(t, nil, func(w *testAPI) {
		made := owned(w)
		w.want(http.StatusOK, "PATCH", made["pod"], `{"name":"renamed"}`, as(operatorFree))
		if got := w.want(http.StatusOK, "GET", made["pod"], "", as(aliceFree)).field("name"); got != "renamed" {
			t.Errorf("alice's pod is called %q, want renamed", got)
		}
		run := strings.Replace(made["endpoint"], "/serverless", "", 1) + "/run"
		a := w.want(http.StatusOK, "POST", run, `{"input":{}}`, as(operatorFree))
		if a.header.Get("Podyard-Owner") != "alice" {
			t.Errorf("a job for a private endpoint is of %q, want alice", a.header.Get("Podyard-Owner"))
		}
		w.want(http.StatusOK, "GET", strings.Replace(run, "/run", "/status/", 1)+a.field("id"), "", as(alicesEndpoints))
		w.want(http.StatusOK, "POST", strings.Replace(made["job"], "status", "cancel", 1), "", as(operatorFree))
		if got := w.want(http.StatusOK, "GET", made["job"], "", as(alicesEndpoints)).field("status"); got != "CANCELLED" {
			t.Errorf("alice's job is %s after an operator's cancel, want CANCELLED", got)
		}
		for _, kind := range []string{"pod", "template", "registry", "endpoint"} {
			w.want(http.StatusNotFound, "DELETE", made[kind], "", as(adminFree))
			w.want(http.StatusNoContent, "DELETE", made[kind], "", as(operatorFree))
		}
	})
}

// itemOwners returns the owners of the items in a list answer, or nil if items have no
// owners.
func itemOwners(t *testing.T, a answer) (owners []string, n int) {
	t.Helper()
	var body map[string]json.RawMessage
	if err := json.Unmarshal([]byte(a.body), &body); err != nil {
		t.Fatal(err)
	}
	for _, v := range body {
		var items []struct {
			Owner string          `json:"owner"`
			Item  json.RawMessage `json:"item"`
		}
		if json.Unmarshal(v, &items) != nil {
			continue
		}
		for _, i := range items {
			if i.Item != nil {
				owners = append(owners, i.Owner)
			}
		}
		n += len(items)
	}
	return owners, n
}

func TestAnOperatorListsByOwner(t *testing.T) {
	withEndpoints(t, nil, func(w *testAPI) {
		owned(w)
		for _, key := range []string{bobFree, operatorFree} {
			w.want(http.StatusCreated, "POST", "/v2/pods", `{"name":"p","image":"i","cpu":{"id":"cpu3c","vcpuCount":2}}`, as(key))
			w.want(http.StatusOK, "POST", "/v2/idle/run", `{"input":{}}`, as(key))
		}
		for _, row := range []struct {
			path               string
			own, alices, total int
		}{
			{"/v2/pods", 1, 1, 3},
			{"/v2/network-volumes", 0, 2, 2},
			{"/v2/templates", 0, 1, 1},
			{"/v2/registries", 0, 1, 1},
			{"/v2/serverless", 3, 4, 4}, // three are shared
			{"/v2/idle/requests", 1, 1, 3},
		} {
			if owners, n := itemOwners(t, w.want(http.StatusOK, "GET", row.path, "", as(operatorFree))); n != row.own || owners != nil {
				t.Errorf("%s without an owner has %d items of %v, want the operator's own %d, plain", row.path, n, owners, row.own)
			}
			owners, n := itemOwners(t, w.want(http.StatusOK, "GET", row.path+"?owner=alice", "", as(operatorFree)))
			if n != row.alices || len(owners) != n || strings.ContainsAny(strings.Join(owners, ""), "b") {
				t.Errorf("%s of alice has %d items of %v, want %d of alice", row.path, n, owners, row.alices)
			}
			if owners, n := itemOwners(t, w.want(http.StatusOK, "GET", row.path+"?owner=*", "", as(operatorFree))); n != row.total || len(owners) != n {
				t.Errorf("%s of all has %d items of %v, want %d with owners", row.path, n, owners, row.total)
			}
			w.want(http.StatusUnprocessableEntity, "GET", row.path+"?owner=", "", as(operatorFree))
			w.want(http.StatusForbidden, "GET", row.path+"?owner=alice", "", as(adminFree))
			w.want(http.StatusForbidden, "GET", row.path+"?owner=admin", "", as(adminFree))
		}
		w.want(http.StatusUnprocessableEntity, "POST", "/v2/pods?owner=alice", `{}`, as(operatorFree))
		w.want(http.StatusUnprocessableEntity, "GET", "/v2/account/ssh-keys?owner=*", "", as(operatorFree))
		w.want(http.StatusOK, "GET", "/v2/account/ssh-keys?owner=alice", "", as(operatorFree))
	})
}

func TestAnOperatorsPurgeGoesAsFarAsItSays(t *testing.T) {
	withEndpoints(t, nil, func(w *testAPI) {
		for _, key := range []string{alicesEndpoints, bobsEndpoints, bobsEndpoints, operatorFree} {
			w.want(http.StatusOK, "POST", "/v2/idle/run", `{"input":{}}`, as(key))
		}
		w.want(http.StatusForbidden, "POST", "/v2/idle/purge-queue?owner=*", "", as(adminFree))
		for _, row := range [][2]string{{"", "1"}, {"?owner=bob", "2"}, {"?owner=*", "1"}} {
			want := `{"removed":` + row[1] + `,"status":"completed"}`
			if got := w.want(http.StatusOK, "POST", "/v2/idle/purge-queue"+row[0], "", as(operatorFree)).body; got != want {
				t.Errorf("a purge%s = %s, want %s", row[0], got, want)
			}
		}
	})
}

// ownedBodies are the bodies of operations that take ?owner=.
var ownedBodies = map[string]string{"actions": `{"action":"cancel","all":true,"preview":true,"limit":10}`}

func TestEveryOperationThatTakesAnOwnerTakesItOnSharedAndPrivateEndpoints(t *testing.T) {
	withEndpoints(t, nil, func(w *testAPI) {
		private := strings.TrimPrefix(owned(w)["endpoint"], "/v2/serverless/")
		// Without an owner an operator finds the endpoint by its id; bob has none with this id.
		want := map[string]map[string]int{
			"idle":  {"": 200, "?owner=alice": 200, "?owner=bob": 200, "?owner=*": 200},
			private: {"": 200, "?owner=alice": 200, "?owner=bob": 404, "?owner=*": 200},
		}
		ops := 0
		for _, o := range httpapi.Operations() {
			if o.Owners == httpapi.OwnersNone {
				continue
			}
			for endpoint, statuses := range want {
				path := strings.NewReplacer("{endpoint}", endpoint, "{id}", endpoint).Replace(o.Path)
				if path == o.Path && endpoint != "idle" {
					continue // not about an endpoint
				}
				for owner, status := range statuses {
					if owner == "?owner=*" && o.Owners == httpapi.OwnersOne {
						status = http.StatusUnprocessableEntity
					}
					ops++
					a := w.call(o.Methods[0], path+owner, ownedBodies[o.Name], as(operatorFree))
					if a.status != status {
						t.Errorf("%s: %s %s%s by an operator = %d %s, want %d", o.Name, o.Methods[0], path, owner, a.status, a.body, status)
					}
				}
				if a := w.call(o.Methods[0], path+"?owner=*", ownedBodies[o.Name], as(adminFree)); a.status != http.StatusForbidden {
					t.Errorf("%s: ?owner=* without the scope operator = %d %s, want 403", o.Name, a.status, a.body)
				}
			}
		}
		if ops < 60 {
			t.Errorf("only %d requests were tried: the table of operations has changed its form", ops)
		}
	})
}

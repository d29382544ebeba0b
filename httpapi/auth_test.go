package httpapi_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit"
)

// pathOf returns a path of an operation, on the endpoint idle and on records that do not
// exist.
func pathOf(op string) (method, path string) {
	method, path, _ = strings.Cut(op, " ")
	path = strings.NewReplacer("/v2/{}/", "/v2/idle/", "/lb/{}/", "/lb/idle/").Replace(path)
	return method, strings.Replace(path, "{}", "nothere", 1)
}

func isJobs(op string) bool {
	return strings.Contains(op, "/v2/{}/") || strings.Contains(op, "/lb/{}/")
}

func TestKeysComeInTheFormsOfTheirArea(t *testing.T) {
	forms := []struct {
		header        string
		control, jobs bool
	}{
		{"Bearer " + aliceFree, true, true},
		{"bearer " + aliceFree, true, true},
		{"BEARER " + aliceFree, true, true},
		{"bEaReR   " + aliceFree, true, true},
		{aliceFree, false, true},
		{"Basic " + aliceFree, false, false},
		{"Bearer", false, false},
		{"Bearer " + aliceFree + " x", false, false},
		{"Bearer Bearer " + aliceFree, false, false},
		{"Bearer" + aliceFree, false, false},
		{"Bearer nobody", false, false},
		{"nobody", false, false},
		{"Bearer " + oldKey, false, false},
		{oldKey, false, false},
		{"", false, false},
	}
	bubble(t, func(w *testAPI) {
		for _, op := range operations {
			method, path := pathOf(op)
			for _, form := range forms {
				a := w.call(method, path, "", "Authorization: "+form.header)
				if want := form.control || isJobs(op) && form.jobs; (a.status != 401) != want {
					t.Errorf("%s with %q = %d, want it known: %v", op, form.header, a.status, want)
				}
				if a.status != 401 {
					continue
				}
				if a.header.Get("WWW-Authenticate") != "Bearer" {
					t.Errorf("%s with %q: WWW-Authenticate = %q", op, form.header, a.header.Get("WWW-Authenticate"))
				}
				for name := range a.header {
					if strings.HasPrefix(strings.ToLower(name), "ratelimit") || name == "Retry-After" {
						t.Errorf("%s with %q = 401 with %s", op, form.header, name)
					}
				}
				if strings.Contains(a.body, aliceFree) {
					t.Errorf("%s with %q shows the key: %s", op, form.header, a.body)
				}
			}
		}
	})
}

func TestKeyExpiresAtItsInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ks, err := httpapi.NewKeys([]httpapi.Key{{Secret: "k", User: "u", Expires: time.Now().Add(time.Second)}}, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ks.Authenticate(t.Context(), "k"); err != nil {
			t.Errorf("Authenticate before = %v", err)
		}
		time.Sleep(time.Second)
		if _, err := ks.Authenticate(t.Context(), "k"); !errors.Is(err, httpapi.ErrKey) {
			t.Errorf("Authenticate at the instant = %v, want ErrKey", err)
		}
	})
}

func TestKeysMayBeGivenAsDigests(t *testing.T) {
	d := sha256.Sum256([]byte("secret"))
	ks, err := httpapi.NewKeys([]httpapi.Key{{Secret: "sha256:" + hex.EncodeToString(d[:]), User: "u", Scopes: []string{"*"}}}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	id, err := ks.Authenticate(t.Context(), "secret")
	if err != nil || id.User != "u" {
		t.Errorf("Authenticate = %v, %v", id, err)
	}
	if _, err := ks.Authenticate(t.Context(), "sha256:"+hex.EncodeToString(d[:])); !errors.Is(err, httpapi.ErrKey) {
		t.Errorf("Authenticate by the digest = %v, want ErrKey", err)
	}
}

func TestOnlyTheirOwnScopesAllowTheActsOfOperatorsAndTheWorkOfAnEndpoint(t *testing.T) {
	all := []string{"*", "operator", "endpoint:*:run", "endpoint:e1:work", "endpoint:*:work", "endpoints:write"}
	for need, allowed := range map[string][]string{
		"operator":         {"operator"},
		"endpoint:e1:work": {"endpoint:e1:work", "endpoint:*:work"},
		"endpoint:e2:work": {"endpoint:*:work"},
		"endpoint:e1:run":  {"*", "endpoint:*:run"},
	} {
		for _, has := range all {
			id := httpapi.Identity{Scopes: []httpapi.Permission{parseScope(t, has)}}
			if got, want := id.Can(parseScope(t, need)), slices.Contains(allowed, has); got != want {
				t.Errorf("a key with %s can %s: %v, want %v", has, need, got, want)
			}
		}
	}
}

func parseScope(t *testing.T, s string) httpapi.Permission {
	t.Helper()
	p, err := httpapi.ParseScope(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWrongKeysAreNamedByTheirPlaceAndNeverShown(t *testing.T) {
	for name, tt := range map[string]struct {
		key   httpapi.Key
		field string
	}{
		"no secret":          {httpapi.Key{User: "u"}, "Secret"},
		"blanks in a secret": {httpapi.Key{Secret: "hush hush", User: "u"}, "Secret"},
		"no user":            {httpapi.Key{Secret: "hush"}, "User"},
		"everyone as user":   {httpapi.Key{Secret: "hush", User: "*"}, "User"},
		"a line as user":     {httpapi.Key{Secret: "hush", User: "u\nv"}, "User"},
		"a long user":        {httpapi.Key{Secret: "hush", User: strings.Repeat("u", 256)}, "User"},
		"a digest too short": {httpapi.Key{Secret: "sha256:68757368", User: "u"}, "Secret"},
		"a digest of no hex": {httpapi.Key{Secret: "sha256:hush", User: "u"}, "Secret"},
		"an unknown scope":   {httpapi.Key{Secret: "hush", User: "u", Scopes: []string{"pods:delete"}}, "Scopes"},
		"a secret twice":     {httpapi.Key{Secret: "first", User: "u"}, "Secret"},
	} {
		_, err := httpapi.NewKeys([]httpapi.Key{{Secret: "first", User: "a"}, tt.key}, time.Now)
		var wrong *httpapi.KeyError
		if !errors.As(err, &wrong) || wrong.Index != 1 || wrong.Field != tt.field || !strings.Contains(err.Error(), "key 1") || strings.Contains(err.Error(), "hush") {
			t.Errorf("NewKeys with %s = %v, want a KeyError of %s of key 1", name, err, tt.field)
		}
	}
}

func TestAKeyWithoutScopesReadsTheCatalogAndHealth(t *testing.T) {
	known, err := httpapi.NewKeys([]httpapi.Key{{Secret: "k", User: "u"}}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	bubbleWith(t, func(o *httpapi.Options) { o.Auth = known }, func(w *testAPI) {
		w.want(200, "GET", "/v2/catalog/cpus", "", "Authorization: Bearer k")
		w.want(200, "GET", "/v2/echo/health", "", "Authorization: Bearer k")
		w.want(403, "GET", "/v2/pods", "", "Authorization: Bearer k")
		w.want(403, "GET", "/v2/echo/requests", "", "Authorization: Bearer k")
	})
}

func TestScopesAreTheOnesOfTheDecisions(t *testing.T) {
	for _, s := range []string{
		"", "pods", "pods:", "pods:run", ":read", "*:read", "catalog:read", "endpoint:run", "endpoint::run",
		"endpoint:x:write", "endpoint:x", "endpoint:x:run:y", "Pods:read", " pods:read", "**",
	} {
		if p, err := httpapi.ParseScope(s); err == nil {
			t.Errorf("ParseScope(%q) = %v, want an error", s, p)
		}
	}
}

// needs lists the scopes that allow an operation on the endpoint idle (docs/decisions.md
// 14). Operations without a row need any valid key.
var needs = map[string][]string{
	"GET /v2/pods": podReaders, "POST /v2/pods": podWriters, "GET /v2/pods/{}": podReaders, "PATCH /v2/pods/{}": podWriters,
	"DELETE /v2/pods/{}": podWriters, "POST /v2/pods/{}/action": podWriters, "GET /v2/pods/{}/logs": podReaders,
	"GET /v2/pods/{}/why": podReaders, "GET /v2/pods/{}/options": podReaders,
	"POST /v2/pods/{}/exec": podWriters, "GET /v2/pods/{}/terminal": podWriters, "GET /v2/pods/{}/files": podWriters, "PUT /v2/pods/{}/files": podWriters,
	"POST /v1/pods/{}/reset": podWriters,
	"GET /v2/registries":     registryReaders, "POST /v2/registries": registryWriters,
	"GET /v2/registries/{}": registryReaders, "DELETE /v2/registries/{}": registryWriters,
	"GET /v2/billing": podReaders, "GET /v2/billing/pods": podReaders, "GET /v2/billing/network-volumes": podReaders,
	"GET /v2/billing/serverless": podReaders, "GET /v2/billing/endpoints": podReaders, "GET /v2/billing/clusters": podReaders,
	"GET /v2/clusters": podReaders, "POST /v2/clusters": podWriters, "GET /v2/clusters/{}": podReaders, "PATCH /v2/clusters/{}": podWriters,
	"DELETE /v2/clusters/{}": podWriters, "GET /v2/clusters/{}/pods": podReaders, "GET /v2/registries/delegations": registryReaders,
	"POST /v2/registries/delegations": registryWriters, "DELETE /v2/registries/delegations/{}": registryWriters,
	"GET /v2/templates": podReaders, "POST /v2/templates": podWriters, "GET /v2/templates/{}": podReaders,
	"PATCH /v2/templates/{}": podWriters, "DELETE /v2/templates/{}": podWriters,
	"GET /v2/account/ssh-keys": podReaders, "PUT /v2/account/ssh-keys": podWriters,
	"GET /v2/account/secrets": secretReaders, "POST /v2/account/secrets": secretWriters,
	"GET /v2/account/secrets/{}": secretReaders, "PATCH /v2/account/secrets/{}": secretWriters, "DELETE /v2/account/secrets/{}": secretWriters,
	"GET /v2/account/keys": keyManagers, "POST /v2/account/keys": keyManagers, "GET /v2/account/keys/{}": keyManagers,
	"PATCH /v2/account/keys/{}": keyManagers, "DELETE /v2/account/keys/{}": keyManagers, "POST /v2/account/keys/{}/rotate": keyManagers,
	"GET /v2/global-volumes": podReaders, "POST /v2/global-volumes": podWriters, "GET /v2/global-volumes/{}": podReaders,
	"PATCH /v2/global-volumes/{}": podWriters, "DELETE /v2/global-volumes/{}": podWriters,
	"GET /v2/network-volumes": podReaders, "POST /v2/network-volumes": podWriters, "GET /v2/network-volumes/{}": podReaders,
	"PATCH /v2/network-volumes/{}": podWriters, "DELETE /v2/network-volumes/{}": podWriters,
	"POST /v2/{}/run": runners, "POST /v2/{}/runsync": runners, "POST /v2/{}/cancel/{}": runners,
	"POST /v2/{}/retry/{}": runners, "POST /v2/{}/purge-queue": runners, "POST /v2/{}/actions": runners,
	"GET /v2/{}/status/{}": readers, "POST /v2/{}/status/{}": readers, "GET /v2/{}/status-sync/{}": readers,
	"POST /v2/{}/status-sync/{}": readers, "GET /v2/{}/stream/{}": readers, "POST /v2/{}/stream/{}": readers,
	"GET /v2/{}/requests": readers,
	"GET /v2/{}/events":   readers, "GET /v2/{}/schedules": readers, "POST /v2/{}/schedules": runners, "GET /v2/{}/schedules/{}": readers,
	"GET /v2/{}/batch": readers, "POST /v2/{}/batch": runners, "GET /v2/{}/batch/{}": readers, "PUT /v2/{}/batch/{}": runners,
	"POST /v2/{}/batch/{}/requests": runners, "GET /v2/{}/batch/{}/requests": readers, "DELETE /v2/{}/batch/{}/requests/{}": runners,
	"POST /v2/{}/batch/{}/finalize": runners, "POST /v2/{}/batch/{}/cancel": runners,
	"PATCH /v2/{}/schedules/{}": runners, "DELETE /v2/{}/schedules/{}": runners, "POST /v2/{}/schedules/{}/run": runners,
	"GET /v2/{}/attempts/{}": readers, "GET /v2/{}/log/{}": readers, "GET /v2/{}/dead": readers, "GET /v2/{}/dead/{}": readers,
	"POST /v2/{}/dead/{}/redrive": runners, "DELETE /v2/{}/dead/{}": runners,
	"GET /lb/{}/{}": runners, "POST /lb/{}/{}": runners, "PUT /lb/{}/{}": runners, "PATCH /lb/{}/{}": runners, "DELETE /lb/{}/{}": runners,
	"OPTIONS /lb/{}/{}":   runners,
	"GET /v2/admin/audit": operators, "POST /v2/admin/reload": operators,
	"POST /v2/admin/cordon": operators, "POST /v2/admin/uncordon": operators, "POST /v2/admin/drain": operators,
	"GET /v2/admin/state": operators, "DELETE /v2/admin/users/{}": operators, "DELETE /v2/admin/users/{}/jobs": operators,
}

var (
	podReaders      = []string{"*", "pods:read", "pods:write"}
	podWriters      = []string{"*", "pods:write"}
	keyManagers     = []string{"*", "operator"}
	registryReaders = []string{"*", "registries:read", "registries:write"}
	registryWriters = []string{"*", "registries:write"}
	secretReaders   = []string{"*", "secrets:read", "secrets:write"}
	secretWriters   = []string{"*", "secrets:write"}
	operators       = []string{"operator"}
	runners         = []string{"*", "endpoint:idle:run", "endpoint:*:run"}
	readers         = append([]string{"endpoint:idle:read", "endpoint:*:read"}, runners...)
)

var scopes = []string{
	"none", "*", "pods:read", "pods:write", "registries:read", "registries:write", "secrets:read", "secrets:write", "endpoints:read", "endpoints:write",
	"endpoint:idle:read", "endpoint:idle:run", "endpoint:*:read", "endpoint:*:run", "endpoint:echo:read", "endpoint:echo:run", "operator",
}

func TestEveryOperationWithEveryScope(t *testing.T) {
	var ks []httpapi.Key
	for _, s := range scopes {
		k := httpapi.Key{Secret: "with " + s, User: "u", Scopes: []string{s}, Exempt: true}
		k.Secret = strings.ReplaceAll(k.Secret, " ", "-")
		if s == "none" {
			k.Scopes = nil
		}
		ks = append(ks, k)
	}
	known, err := httpapi.NewKeys(ks, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	bubbleWith(t, func(o *httpapi.Options) { o.Auth = known }, func(w *testAPI) {
		for _, op := range operations {
			method, path := pathOf(op)
			for i, s := range scopes {
				a := w.call(method, path, "", "Authorization: Bearer "+ks[i].Secret)
				want, limited := needs[op]
				may := !limited || strings.Contains(" "+strings.Join(want, " ")+" ", " "+s+" ")
				if (a.status != 403) != may {
					t.Errorf("%s with scope %s = %d, want it allowed: %v", op, s, a.status, may)
				}
				if a.status == 403 && a.faults(t) != "access denied" {
					t.Errorf("%s with scope %s = %s", op, s, a.body)
				}
			}
		}
		// The scope is checked before existence and before the body.
		for _, target := range []string{"/v2/nowhere/run", "/v2/pods"} {
			if got := w.call("POST", target, "{", "Authorization: Bearer with-none", "Content-Type: text/plain").status; got != 403 {
				t.Errorf("POST %s without a scope = %d, want 403", target, got)
			}
		}
	})
}

func TestReadScopeCannotMoveAnExpiry(t *testing.T) {
	known, err := httpapi.NewKeys([]httpapi.Key{
		{Secret: "reader", User: "alice", Scopes: []string{"endpoint:idle:read"}},
		{Secret: "runner", User: "alice", Scopes: []string{"endpoint:idle:run"}},
	}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	bubbleWith(t, func(o *httpapi.Options) { o.Auth = known }, func(w *testAPI) {
		id := w.want(200, "POST", "/v2/idle/run", `{"input":{}}`, "Authorization: runner").field("id")
		w.want(200, "GET", "/v2/idle/status/"+id, "", "Authorization: reader")
		w.want(403, "GET", "/v2/idle/status/"+id+"?ttl=1000", "", "Authorization: reader")
		w.want(200, "HEAD", "/v2/idle/status/"+id+"?ttl=1000", "", "Authorization: runner")
		advance(2 * time.Second)
		w.want(200, "GET", "/v2/idle/status/"+id+"?ttl=1000", "", "Authorization: runner")
		advance(2 * time.Second)
		w.want(404, "GET", "/v2/idle/status/"+id, "", "Authorization: reader")
	})
}

func TestRecordsOfOthersAreNotThere(t *testing.T) {
	bubble(t, func(w *testAPI) {
		f := newFixture(w)
		bob := "Authorization: Bearer " + bobFree
		for _, id := range []string{"{gpu}", "{cpu}", "{locked}", "{plain}"} {
			path := f.names.Replace("/v2/pods/" + id)
			for _, r := range [][3]string{
				{"GET", path, ""}, {"PATCH", path, `{"name":"x"}`}, {"DELETE", path, ""},
				{"POST", path + "/action", `{"action":"terminate"}`}, {"GET", path + "/logs", ""},
				{"POST", strings.Replace(path, "v2", "v1", 1) + "/reset", ""},
			} {
				theirs := w.call(r[0], r[1], r[2], bob)
				none := w.call(r[0], strings.Replace(r[1], f.names.Replace(id), "nothere", 1), r[2], bob)
				if theirs.status != 404 || theirs.body != none.body {
					t.Errorf("%s %s = %d %s, unlike a record that does not exist: %s", r[0], r[1], theirs.status, theirs.body, none.body)
				}
			}
			if list := w.call("GET", "/v2/pods", "", bob).body; strings.Contains(list, f.names.Replace(id)) {
				t.Errorf("the listing of bob has alice's pod: %s", list)
			}
		}
		if list := w.call("GET", "/v2/idle/requests", "", bob).body; strings.Contains(list, f.names.Replace("{queued}")) {
			t.Errorf("the requests of bob have alice's job: %s", list)
		}
		if got := w.call("POST", "/v2/idle/purge-queue", "", bob).body; got != `{"removed":2,"status":"completed"}` {
			t.Errorf("a purge by bob = %s, want his job and the request of his batch removed", got)
		}
		if got := w.call("POST", "/v2/idle/purge-queue", "", "Authorization: "+operatorFree).body; got != `{"removed":0,"status":"completed"}` {
			t.Errorf("a purge by an operator who names nobody = %s, want alice's job kept", got)
		}
	})
}

// limits returns the headers of docs/interface.md 7.
func limits(a answer) [3]string {
	return [3]string{a.header.Get("RateLimit"), a.header.Get("RateLimit-Policy"), a.header.Get("Retry-After")}
}

func TestQuotaHeadersAreOnEveryAnswerToAKnownKeyAndOnNoOther(t *testing.T) {
	bubble(t, func(w *testAPI) {
		for _, op := range operations {
			method, path := pathOf(op)
			for _, body := range []string{"", "{"} { // a purge has a rate of two
				a := w.call(method, path, body)
				if got := limits(a); (got[0] != "" && got[1] != "") != !isJobs(op) || got[2] != "" {
					t.Errorf("%s = %d with %q", op, a.status, got)
				}
				if got := limits(w.call(method, path, body, "Authorization: Bearer "+aliceFree)); got != [3]string{} {
					t.Errorf("%s with an exempt key has %q", op, got)
				}
				if got := limits(w.call(method, path, body, "Authorization: Bearer nobody")); got != [3]string{} {
					t.Errorf("%s with an unknown key has %q", op, got)
				}
			}
		}
	})
}

func TestRouteThatIsNotThereTellsAKnownKeyOfItsQuota(t *testing.T) {
	bubbleWith(t, quotas(2, 100, 100), func(w *testAPI) {
		const policy = `"minute";q=2;w=60, "hour";q=100;w=3600, "day";q=100;w=86400`
		for _, row := range []struct {
			status       int
			method, path string
			limit        string
		}{
			{405, "PUT", "/v2/pods", `"minute";r=1;t=60, "hour";r=99;t=3600, "day";r=99;t=86400`},
			{404, "GET", "/v2/pods/x/y", `"minute";r=0;t=60, "hour";r=98;t=3600, "day";r=98;t=86400`},
			{404, "GET", "/v2/pods/", `"minute";r=0;t=60, "hour";r=98;t=3600, "day";r=98;t=86400`},
			{405, "GET", "/v1/pods/x/reset", `"minute";r=0;t=60, "hour";r=98;t=3600, "day";r=98;t=86400`},
		} {
			for _, stranger := range []string{"Authorization: Bearer nobody", "Authorization: Bearer " + aliceFree, "Authorization: "} {
				if got := limits(w.want(row.status, row.method, row.path, "", stranger)); got != [3]string{} {
					t.Errorf("%s %s with %q has %q", row.method, row.path, stranger, got)
				}
			}
			if diff := cmp.Diff([3]string{row.limit, policy}, limits(w.want(row.status, row.method, row.path, ""))); diff != "" {
				t.Errorf("%s %s: headers (-want +got):\n%s", row.method, row.path, diff)
			}
		}
		for _, path := range []string{"/v2/echo/run", "/v2/nowhere"} {
			if got := limits(w.call("GET", path, "")); got != [3]string{} {
				t.Errorf("GET %s, which is the jobs API's, has %q", path, got)
			}
		}
		w.want(429, "GET", "/v2/pods", "")
	})
}

func TestWindowThatIsFullRefusesWithoutCharging(t *testing.T) {
	for _, row := range []struct {
		window             string
		minute, hour, day  int
		retry              int
		limit, policy      string
		afterwards, ofless time.Duration
	}{
		{"minute", 2, 100, 100, 60, `"minute";r=0;t=60, "hour";r=98;t=3600, "day";r=98;t=86400`, `"minute";q=2;w=60, "hour";q=100;w=3600, "day";q=100;w=86400`, time.Minute, 59 * time.Second},
		{"hour", 100, 2, 100, 3600, `"minute";r=98;t=60, "hour";r=0;t=3600, "day";r=98;t=86400`, `"minute";q=100;w=60, "hour";q=2;w=3600, "day";q=100;w=86400`, time.Hour, 59 * time.Minute},
		{"day", 100, 100, 2, 86400, `"minute";r=98;t=60, "hour";r=98;t=3600, "day";r=0;t=86400`, `"minute";q=100;w=60, "hour";q=100;w=3600, "day";q=2;w=86400`, 24 * time.Hour, 23 * time.Hour},
	} {
		t.Run(row.window, func(t *testing.T) {
			bubbleWith(t, quotas(row.minute, row.hour, row.day), func(w *testAPI) {
				w.want(200, "GET", "/v2/pods", "")
				w.want(404, "POST", "/v1/pods/x/reset", "") // unsuccessful requests count, too
				for range 5 {
					a := w.want(429, "POST", "/v2/pods", gpuPod)
					want := [3]string{row.limit, row.policy, strconv.Itoa(row.retry)}
					if diff := cmp.Diff(want, limits(a)); diff != "" {
						t.Fatalf("headers (-want +got):\n%s", diff)
					}
					if want := `{"title":"Too Many Requests","status":429,"detail":"rate limit exceeded for the ` + row.window + ` window"}`; a.body != want {
						t.Fatalf("body = %s\nwant   %s", a.body, want)
					}
				}
				w.want(200, "GET", "/v2/pods", "", "Authorization: Bearer "+bobKey)
				if got := w.call("GET", "/v2/pods", "", "Authorization: Bearer "+aliceFree).body; got != `{"pods":[],"pagination":{"nextCursor":null,"hasNextPage":false}}` {
					t.Errorf("a refused request made %s", got)
				}
				advance(row.ofless)
				w.want(429, "GET", "/v2/pods", "")
				advance(row.afterwards - row.ofless)
				w.want(200, "GET", "/v2/pods", "")
			})
		})
	}
}

func TestQuotaComesAfterTheKeyAndBeforeTheScope(t *testing.T) {
	known, err := httpapi.NewKeys([]httpapi.Key{{Secret: "k", User: "u"}}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	set := func(o *httpapi.Options) {
		quotas(1, 0, 0)(o)
		o.Auth = known
	}
	bubbleWith(t, set, func(w *testAPI) {
		w.want(403, "GET", "/v2/pods", "", "Authorization: Bearer k")
		w.want(429, "GET", "/v2/pods", "", "Authorization: Bearer k")
		w.want(401, "GET", "/v2/pods", "", "Authorization: Bearer l")
		w.want(404, "GET", "/v2/nothing/at/all", "", "Authorization: Bearer k")
		w.want(405, "PUT", "/v2/pods", "", "Authorization: Bearer k")
	})
}

// rated has a request for each operation that docs/interface.md 8.3 limits.
var rated = map[ratelimit.Operation][3]string{
	ratelimit.Run:        {"POST", "/v2/idle/run", "{"},
	ratelimit.RunSync:    {"POST", "/v2/idle/runsync", "{"},
	ratelimit.Status:     {"GET", "/v2/idle/status/x", ""},
	ratelimit.Stream:     {"GET", "/v2/idle/stream/x", ""},
	ratelimit.Cancel:     {"POST", "/v2/idle/cancel/x", ""},
	ratelimit.PurgeQueue: {"POST", "/v2/idle/purge-queue", ""},
	ratelimit.Requests:   {"GET", "/v2/idle/requests", ""},
	ratelimit.Actions:    {"POST", "/v2/idle/actions", ""},
}

func TestRequestBeyondTheRateOfAnOperationIsRefused(t *testing.T) {
	suite.SkipUnlessLong(t)
	for _, limit := range ratelimit.Limits() {
		r, ok := rated[limit.Operation]
		if !ok {
			continue
		}
		t.Run(limit.Name, func(t *testing.T) {
			bubble(t, func(w *testAPI) {
				for i := range limit.Requests {
					if a := w.call(r[0], r[1], r[2]); a.status == 429 || limits(a) != [3]string{} {
						t.Fatalf("request %d = %d with %q", i, a.status, limits(a))
					}
				}
				a := w.want(429, r[0], r[1], r[2])
				want := [3]string{
					fmt.Sprintf(`"%s";r=0;t=%s`, limit.Name, a.header.Get("Retry-After")),
					fmt.Sprintf(`"%s";q=%d;w=10`, limit.Name, limit.Requests), fmt.Sprint(max(1, 10/limit.Requests)),
				}
				if diff := cmp.Diff(want, limits(a)); diff != "" {
					t.Errorf("headers (-want +got):\n%s", diff)
				}
				if got, want := a.faults(t), fmt.Sprintf("rate limit exceeded for %s: %d requests per 10 s", limit.Name, limit.Requests); got != want {
					t.Errorf("detail = %q, want %q", got, want)
				}
				if got := w.call(r[0], r[1], r[2], "Authorization: "+bobKey).status; got == 429 {
					t.Error("another user is refused")
				}
				if got := w.call(r[0], strings.Replace(r[1], "idle", "echo", 1), r[2]).status; got == 429 {
					t.Error("another endpoint is refused")
				}
				if got := w.call(r[0], r[1], r[2], "Authorization: "+aliceFree).status; got == 429 {
					t.Error("an exempt key is refused")
				}
				advance(10 * time.Second / time.Duration(limit.Requests))
				if got := w.call(r[0], r[1], r[2]).status; got == 429 {
					t.Error("the bucket is not refilled evenly")
				}
				if got := w.call(r[0], r[1], r[2]).status; got != 429 {
					t.Errorf("the second request = %d, want 429", got)
				}
			})
		})
	}
}

func TestRetryAndHealthHaveNoRate(t *testing.T) {
	suite.SkipUnlessLong(t)
	bubble(t, func(w *testAPI) {
		for range 3000 {
			w.want(404, "POST", "/v2/idle/retry/x", "")
			w.want(200, "GET", "/v2/idle/health", "")
		}
	})
}

func TestRequestsAtOnceAreLimited(t *testing.T) {
	bubble(t, func(w *testAPI) {
		id := w.want(200, "POST", "/v2/idle/run", `{"input":{}}`).field("id")
		target := "/v2/idle/status-sync/" + id + "?wait=5000"
		answers := make(chan int, 400)
		for range 400 {
			go func() { answers <- w.call("GET", target, "").status }()
		}
		synctest.Wait()
		a := w.want(429, "GET", "/v2/idle/status/"+id, "")
		if got, want := a.faults(t), "concurrency limit exceeded for status: 400 requests at once"; got != want {
			t.Errorf("detail = %q, want %q", got, want)
		}
		if got, want := limits(a), [3]string{`"status";r=1600;t=1`, `"status";q=2000;w=10`, "1"}; got != want {
			t.Errorf("headers = %q, want %q", got, want)
		}
		w.want(200, "GET", "/v2/idle/status/"+id, "", "Authorization: "+aliceFree)
		advance(5 * time.Second)
		for range 400 {
			if got := <-answers; got != 200 {
				t.Errorf("a request that was held = %d", got)
			}
		}
		w.want(200, "GET", "/v2/idle/status/"+id, "")
	})
}

func TestAuthenticatorThatFailsIsNoWrongKey(t *testing.T) {
	broken := authFunc(func(context.Context, string) (httpapi.Identity, error) {
		return httpapi.Identity{}, errors.New("dial 10.0.0.7")
	})
	var log strings.Builder
	set := func(o *httpapi.Options) { o.Auth, o.Logger = broken, slog.New(slog.NewTextHandler(&log, nil)) }
	bubbleWith(t, set, func(w *testAPI) {
		if got, want := w.want(500, "GET", "/v2/pods", "").body, `{"title":"Internal Server Error","status":500,"detail":"internal error"}`; got != want {
			t.Errorf("body = %s, want %s", got, want)
		}
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "dial 10.0.0.7") || !strings.Contains(got, "path=/v2/pods") || strings.Contains(got, aliceKey) {
			t.Errorf("the log = %q, want one line with the cause and without the key", got)
		}
		log.Reset()
		w.want(404, "GET", "/v2/nothing", "")
		if log.Len() > 0 {
			t.Errorf("a fault of the client is logged: %q", log.String())
		}
	})
	down := authFunc(func(context.Context, string) (httpapi.Identity, error) {
		return httpapi.Identity{}, problem.New(problem.Unavailable, "keys cannot be read now")
	})
	bubbleWith(t, func(o *httpapi.Options) { o.Auth = down }, func(w *testAPI) {
		w.want(503, "GET", "/v2/pods", "")
	})
	// Retry-After is set only if waiting can help.
	forGood := &problem.Error{Kind: problem.Unavailable, Detail: "no key", Permanent: true}
	for err, want := range map[error]string{
		problem.New(problem.Unavailable, "not now"):                  "5",
		problem.Newf(problem.Unavailable, "%w: registries", forGood): "",
		fmt.Errorf("registries: %w", forGood):                        "",
	} {
		failing := authFunc(func(context.Context, string) (httpapi.Identity, error) { return httpapi.Identity{}, err })
		bubbleWith(t, func(o *httpapi.Options) { o.Auth = failing }, func(w *testAPI) {
			for _, path := range []string{"/v2/pods", "/v2/echo/health", "/v2/echo/openai/v1/models"} {
				if got := w.want(503, "GET", path, "").header.Get("Retry-After"); got != want {
					t.Errorf("%s with %q: Retry-After %q, want %q", path, err, got, want)
				}
			}
		})
	}
	wild := authFunc(func(context.Context, string) (httpapi.Identity, error) { panic("wild") })
	bubbleWith(t, func(o *httpapi.Options) { o.Auth = wild }, func(w *testAPI) {
		w.want(500, "GET", "/v2/pods", "")
	})
}

type authFunc func(context.Context, string) (httpapi.Identity, error)

func (f authFunc) Authenticate(ctx context.Context, key string) (httpapi.Identity, error) {
	return f(ctx, key)
}

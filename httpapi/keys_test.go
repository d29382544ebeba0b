package httpapi_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/pods/accounts"
)

// withOperator runs f with a world with an operator's key, and that key's header.
func withOperator(t *testing.T, f func(w *testAPI, root string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		const secret = "key-of-root"
		w := newTestAPI(t, func(o *httpapi.Options) {
			fixed, err := httpapi.NewKeys([]httpapi.Key{{Secret: secret, User: "root", Scopes: []string{"*", "operator"}}}, time.Now)
			if err != nil {
				t.Fatal(err)
			}
			o.Auth = httpapi.AnyOf(nil, fixed, o.Auth)
		})
		synctest.Wait()
		f(w, "Authorization: Bearer "+secret)
	})
}

func TestAKeyIsGoodFromItsCreateToItsDelete(t *testing.T) {
	withOperator(t, func(w *testAPI, root string) {
		made := w.want(201, "POST", "/v2/account/keys", `{"user":"carol","scopes":["*"]}`, root)
		carol := "Authorization: Bearer " + made.field("key")
		if got := made.header.Get("Podyard-Owner"); got != "carol" {
			t.Errorf("a key made for carol names the owner %q", got)
		}
		w.want(200, "GET", "/v2/pods", "", carol)
		w.want(200, "GET", "/v2/echo/requests", "", carol)
		if list := w.want(200, "GET", "/v2/account/keys", "", carol).body; !strings.Contains(list, made.field("id")) || strings.Contains(list, made.field("key")) {
			t.Errorf("carol lists %s", list)
		}
		w.want(204, "DELETE", "/v2/account/keys/"+made.field("id"), "", root)
		w.want(401, "GET", "/v2/pods", "", carol)
		w.want(401, "GET", "/v2/echo/requests", "", carol)
	})
}

func TestARotatedKeyWorksForTheOverlap(t *testing.T) {
	withOperator(t, func(w *testAPI, root string) {
		made := w.want(201, "POST", "/v2/account/keys", `{"scopes":["pods:read"]}`, root)
		path := "/v2/account/keys/" + made.field("id") + "/rotate"
		next := w.want(200, "POST", path, `{"overlap":1000}`, root)
		for _, k := range []string{made.field("key"), next.field("key")} {
			w.want(200, "GET", "/v2/pods", "", "Authorization: Bearer "+k)
		}
		advance(time.Second)
		w.want(401, "GET", "/v2/pods", "", "Authorization: Bearer "+made.field("key"))
		w.want(200, "GET", "/v2/pods", "", "Authorization: Bearer "+next.field("key"))
		last := w.want(200, "POST", path, "", root)
		w.want(401, "GET", "/v2/pods", "", "Authorization: Bearer "+next.field("key"))
		w.want(200, "GET", "/v2/pods", "", "Authorization: Bearer "+last.field("key"))
	})
}

func TestOnlyOperatorsSeeTheKeysOfOthers(t *testing.T) {
	withOperator(t, func(w *testAPI, root string) {
		carols := w.want(201, "POST", "/v2/account/keys", `{"user":"carol","scopes":["*"]}`, root)
		dave := "Authorization: Bearer " + w.want(201, "POST", "/v2/account/keys", `{"user":"dave","scopes":["*"]}`, root).field("key")
		path := "/v2/account/keys/" + carols.field("id")
		for _, r := range [][3]string{{"GET", path, ""}, {"PATCH", path, `{"scopes":["*"]}`}, {"DELETE", path, ""}, {"POST", path + "/rotate", "{}"}} {
			theirs, none := w.want(404, r[0], r[1], r[2], dave), w.want(404, r[0], strings.Replace(r[1], carols.field("id"), "nothere", 1), r[2], dave)
			if theirs.body != none.body {
				t.Errorf("%s %s of another user = %s, unlike one that is not there: %s", r[0], r[1], theirs.body, none.body)
			}
		}
		w.want(403, "GET", "/v2/account/keys?owner=carol", "", dave)
		w.want(403, "GET", "/v2/account/keys?owner=*", "", dave)
		if got := w.want(200, "GET", path, "", root).header.Get("Podyard-Owner"); got != "carol" {
			t.Errorf("an operator's get names the owner %q, want carol", got)
		}
		for query, want := range map[string]int{"": 0, "?owner=carol": 1, "?owner=*": 2, "?owner=nobody": 0} {
			list := w.want(200, "GET", "/v2/account/keys"+query, "", root).body
			if strings.Count(list, `"item":{"id":`) != want {
				t.Errorf("an operator lists %q: %s, want %d keys", query, list, want)
			}
		}
	})
}

func TestTheLastKeyOfAnOperatorStaysOverTheInterface(t *testing.T) {
	bubble(t, func(w *testAPI) {
		k, secret, err := w.services.Accounts.Create(t.Context(), accounts.Caller{Scopes: []accounts.Permission{{Area: "operator"}}}, accounts.CreateRequest{User: "root", Scopes: []string{"operator"}})
		if err != nil {
			t.Fatal(err)
		}
		root := "Authorization: Bearer " + string(secret)
		w.want(409, "DELETE", "/v2/account/keys/"+k.ID, "", root)
		w.want(409, "PATCH", "/v2/account/keys/"+k.ID, `{"scopes":["*"]}`, root)
		w.want(409, "PATCH", "/v2/account/keys/"+k.ID, `{"expires":"2100-01-01T00:00:00Z"}`, root)
		w.want(200, "GET", "/v2/account/keys/"+k.ID, "", root)
		w.want(200, "POST", "/v2/account/keys/"+k.ID+"/rotate", "", root)
	})
}

// Also a key of the configuration that ends has no way to an endless one.
func TestAKeyOfTheConfigurationThatEndsRotatesNoEndlessKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestAPI(t, func(o *httpapi.Options) {
			fixed, err := httpapi.NewKeys([]httpapi.Key{
				{Secret: "endless", User: "alice", Scopes: []string{"*"}},
				{Secret: "brief", User: "alice", Scopes: []string{"*"}, Expires: time.Now().Add(time.Hour)},
				{Secret: "brief-root", User: "root", Scopes: []string{"*", "operator"}, Expires: time.Now().Add(time.Hour)},
			}, time.Now)
			if err != nil {
				t.Fatal(err)
			}
			o.Auth = httpapi.AnyOf(fixed, o.Auth)
		})
		synctest.Wait()
		path := "/v2/account/keys/" + w.want(201, "POST", "/v2/account/keys", `{"scopes":["pods:read"]}`, "Authorization: Bearer endless").field("id")
		for _, key := range []string{"brief", "brief-root"} {
			as := "Authorization: Bearer " + key
			w.want(403, "PATCH", path, `{"scopes":["*"]}`, as)
			w.want(403, "POST", path+"/rotate", "", as)
			w.want(403, "POST", "/v2/account/keys", `{"scopes":["pods:read"]}`, as)
		}
		w.want(200, "GET", path, "", "Authorization: Bearer brief")
		w.want(204, "DELETE", path, "", "Authorization: Bearer brief")
	})
}

package httpapi_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestAPodSaysWhyItDoesNotRunAndMoreToOperators(t *testing.T) {
	bubble(t, func(w *testAPI) {
		const body = `{"name":"c","image":"i","cpu":{"id":"cpu3c","vcpuCount":2},"dataCenterIds":["US-TX-3"]}`
		as := "Authorization: Bearer " + aliceFree
		pod := w.want(201, "POST", "/v2/pods", body, as).field("id")
		advance(10 * time.Second)
		if got := w.want(200, "GET", "/v2/pods/"+pod+"/why", "", as).body; strings.TrimSpace(got) != `{"status":"RUNNING","why":null,"since":null,"tries":0,"nextTry":null}` {
			t.Errorf("while it runs: %s", got)
		}
		w.want(200, "POST", "/v2/pods/"+pod+"/action", `{"action":"stop"}`, as)
		advance(10 * time.Second)
		w.want(200, "POST", "/v2/admin/cordon", `{"host":"us-tx-3-secure"}`, operator)
		a := w.want(200, "GET", "/v2/pods/"+pod+"/why", "", as)
		const want = "It has ended: stopped by its user. It cannot start now: its host takes nothing new, because an operator has cordoned it at "
		if a.field("status") != "EXITED" || !strings.HasPrefix(a.field("why"), want) || a.field("since") == "" || strings.Contains(a.body, "us-tx-3-secure") {
			t.Errorf("a stopped pod whose host is cordoned: %s, want %q and no host", a.body, want)
		}
		if got := w.want(200, "GET", "/v2/pods/"+pod+"/why", "", operator).body; !strings.Contains(got, `"hosts":[{"host":"us-tx-3-secure","kind":"cordoned","why":"takes nothing new`) {
			t.Errorf("an operator sees %s, want the host", got)
		}
	})
}

func TestOperatorsSeeWhoHasWhatOfAHostAndTheCallsOfItsRuntime(t *testing.T) {
	bubble(t, func(w *testAPI) {
		pod := w.want(201, "POST", "/v2/pods", `{"name":"c","image":"i","cpu":{"id":"cpu3c","vcpuCount":2},"dataCenterIds":["US-TX-3"]}`, "Authorization: Bearer "+aliceFree).field("id")
		advance(10 * time.Second)
		w.want(200, "POST", "/v2/admin/cordon", `{"host":"us-tx-3-secure"}`, operator)
		type host struct {
			ID         string
			CordonedAt *time.Time
			Runtime    struct {
				Calls, Failed, WatchRestarts int
				LastFailure                  *struct{}
			}
			Claims []struct {
				Kind, ID, Name, Image, Owner string
				Resources                    []struct {
					Kind, ID string
					Reserved int
				}
			}
		}
		read := func(query string) (found host) {
			var s struct{ Hosts []host }
			if err := json.Unmarshal([]byte(w.want(200, "GET", "/v2/admin/state"+query, "", operator).body), &s); err != nil {
				t.Fatal(err)
			}
			for _, h := range s.Hosts {
				if h.ID == "us-tx-3-secure" {
					found = h
				}
			}
			return found
		}
		if h := read(""); h.Claims != nil || h.CordonedAt == nil || h.Runtime.Calls == 0 || h.Runtime.Failed != 0 || h.Runtime.LastFailure != nil {
			t.Errorf("the host is %+v, want a cordon and calls, and no claims for who does not ask", h)
		}
		h := read("?claims=true")
		if len(h.Claims) != 1 || len(h.Claims[0].Resources) != 1 {
			t.Fatalf("claims = %+v, want those of one pod", h.Claims)
		}
		if c := h.Claims[0]; c.Kind != "pod" || c.ID != pod || c.Name != "c" || c.Owner != "alice" || c.Resources[0].Kind != "vcpu" || c.Resources[0].ID != "cpu3c" || c.Resources[0].Reserved != 2 {
			t.Errorf("the pod has %+v", c)
		}
	})
}

func TestTheWindowsOfAUserAreShownToWhoAsks(t *testing.T) {
	bubble(t, func(w *testAPI) {
		as := "Authorization: Bearer " + bobKey
		if plain := w.want(200, "GET", "/v2/account/limits", "", as).body; strings.Contains(plain, "windows") {
			t.Errorf("who does not ask gets %s", plain)
		}
		a := w.want(200, "GET", "/v2/account/limits?windows=true", "", as)
		var got struct {
			Users []struct {
				User    string
				Windows []struct {
					Name                     string
					Limit, Remaining, Resets int
				}
			}
		}
		if err := json.Unmarshal([]byte(a.body), &got); err != nil || len(got.Users) != 1 || len(got.Users[0].Windows) != 3 {
			t.Fatalf("limits = %s, %v, want three windows of one user", a.body, err)
		}
		// The headers count this request too, and say the same.
		limit := a.header.Get("RateLimit")
		for i, x := range got.Users[0].Windows {
			if x.Name != []string{"minute", "hour", "day"}[i] || x.Limit != []int{600, 18000, 200000}[i] || x.Remaining != x.Limit-2 || x.Resets == 0 {
				t.Errorf("window %d is %+v after two requests; the headers say %s", i, x, limit)
			}
		}
	})
}

func TestAStreamEndsSoonAfterItsKeyIsRevokedOrLosesItsScope(t *testing.T) {
	withOperator(t, func(w *testAPI, root string) {
		ends := func(what, method, body string) {
			t.Helper()
			made := w.want(201, "POST", "/v2/account/keys", `{"user":"alice","scopes":["pods:read","endpoint:echo:read"]}`, root)
			as := "Authorization: Bearer " + made.field("key")
			pod := w.want(201, "POST", "/v2/pods", gpuPod, "Authorization: Bearer "+aliceFree).field("id")
			advance(10 * time.Second)
			began, ended := time.Now(), make(chan time.Duration)
			for _, path := range []string{"/v2/pods/" + pod + "/logs", "/v2/echo/events"} {
				go func() {
					w.listen(time.Hour, path, as)
					ended <- time.Since(began)
				}()
			}
			advance(time.Minute)
			w.want(map[string]int{"DELETE": 204, "PATCH": 200}[method], method, "/v2/account/keys/"+made.field("id"), body, root)
			for range 2 {
				if d := <-ended; d < time.Minute || d > time.Minute+3*time.Second {
					t.Errorf("%s after a minute: a stream ends after %v", what, d)
				}
			}
		}
		ends("revoked", "DELETE", "")
		ends("without its scopes", "PATCH", `{"scopes":["registries:read"]}`)
	})
}

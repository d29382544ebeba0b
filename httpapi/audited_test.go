package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/audit"
	"github.com/podyard/podyard/pods/sshkeys"
)

// audited runs f with a world that keeps an audit log, and an operator's Authorization
// header.
func audited(t *testing.T, f func(w *testAPI, log audit.Trail, root string)) {
	t.Helper()
	log := audit.NewMemory(1000)
	bubbleWith(t, func(o *httpapi.Options) {
		fixed, err := httpapi.NewKeys([]httpapi.Key{{Secret: "key-of-root", User: "root", Scopes: []string{"*", "operator"}}}, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		o.Auth, o.Audit = httpapi.AnyOf(fixed, o.Auth), log
	}, func(w *testAPI) { f(w, log, "Authorization: Bearer key-of-root") })
}

// lines returns the records since the last call, oldest first: kind, user, operation,
// record, owner and status.
func lines(t *testing.T, log audit.Trail, since *time.Time) (list []string) {
	t.Helper()
	records, err := log.Read(t.Context(), audit.Query{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range slices.Backward(records) {
		if r.Time.After(*since) {
			list = append(list, strings.Join([]string{string(r.Kind), r.User, r.Operation, r.Record, r.Owner, http.StatusText(r.Status)}, " "))
			*since = r.Time
		}
	}
	return list
}

func TestChangesAndRefusalsAreKeptAndNothingElse(t *testing.T) {
	audited(t, func(w *testAPI, log audit.Trail, root string) {
		var since time.Time
		for _, tt := range []struct {
			method, path, body string
			header             string
			want               string // "": no record; {} is the id in the answer
		}{
			{"GET", "/v2/pods", "", root, ""},
			{"POST", "/v2/pods", gpuPod, root, "change root createPod {}  Created"},
			{"POST", "/v2/registries", `{"name":"n","username":"u","password":"p"}`, root, "change root createRegistry {}  Created"},
			{"POST", "/v2/templates", `{"name":"n","image":"i"}`, root, "change root createTemplate {}  Created"},
			{"POST", "/v2/network-volumes", `{"name":"n","size":20,"dataCenter":"US-KS-2"}`, root, "change root createNetworkVolume {}  Created"},
			{"POST", "/v2/serverless", `{"name":"e","type":"QUEUE","image":"i","cpu":[{"id":"cpu3c","vcpuCount":2}],"scaling":{"type":"QUEUE_DELAY","queueDelay":4}}`, root, "change root createEndpoint {}  Created"},
			{"POST", "/v2/account/keys", `{"user":"carol","scopes":["*"]}`, root, "change root createKey {} carol Created"},
			{"PUT", "/v2/account/ssh-keys", `{"keys":[]}`, root, "change root updateSshKeys   OK"},
			{"POST", "/v2/account/secrets", `{"name":"n","value":"v"}`, root, "change root createSecret {}  Created"},
			{"PUT", "/v2/account/ssh-keys", `{"keys":1}`, root, ""}, // it changes nothing
			{"DELETE", "/v2/registries/nothere", "", root, ""},
			{"POST", "/v2/clusters", "{}", root, ""},
			{"GET", "/v2/no/such/path", "", "Authorization: Bearer wrong", ""},
			{"GET", "/v2/pods", "", "Authorization:", "refusal  listPods   Unauthorized"},
			{"DELETE", "/v2/pods/p1", "", "Authorization: Bearer wrong", "refusal  deletePod p1  Unauthorized"},
			{"GET", "/v2/account/keys", "", "Authorization: Bearer " + aliceKey, "refusal alice listKeys   Forbidden"},
			{"GET", "/v2/admin/audit", "", "Authorization: Bearer " + adminFree, "refusal admin listAudit   Forbidden"},
			{"GET", "/v2/echo/requests", "", "Authorization: wrong", "refusal  requests   Unauthorized"},
			{"GET", "/v2/echo/job-take/w", "", "Authorization: wrong", "refusal  jobTake   Unauthorized"},
			{"POST", "/v2/echo/runsync", `{"input":{}}`, root, ""},
			{"POST", "/v2/idle/run", `{"input":{}}`, "Authorization: " + aliceFree, ""},
			{"POST", "/v2/idle/purge-queue", "", "Authorization: " + aliceFree, ""},
			{"POST", "/v2/idle/purge-queue", "", root, "change root purgeQueue   OK"},
			{"POST", "/v2/idle/purge-queue?owner=bob", "", root, "change root purgeQueue  bob OK"},
			{"POST", "/v2/echo/job-done/local-echo/j?owner=bob", `{"output":1}`, root, "refusal root jobDone j  Forbidden"}, // it has no such parameter
		} {
			a := w.call(tt.method, tt.path, tt.body, tt.header)
			want := []string(nil)
			if tt.want != "" {
				want = []string{strings.ReplaceAll(tt.want, "{}", a.field("id"))}
			}
			if diff := cmp.Diff(want, lines(t, log, &since)); diff != "" {
				t.Errorf("%s %s = %d %s (-want +got):\n%s", tt.method, tt.path, a.status, a.body, diff)
			}
		}
	})
}

func TestARecordSaysWithWhichKeyAndFromWhereAndHasNoSecret(t *testing.T) {
	audited(t, func(w *testAPI, log audit.Trail, root string) {
		made := w.want(201, "POST", "/v2/account/keys", `{"user":"carol","scopes":["*"]}`, root, "User-Agent: curl/8")
		w.want(200, "PUT", "/v2/account/ssh-keys", `{"keys":["ssh-rsa AAAA"]}`, "Authorization: Bearer "+made.field("key"))
		w.want(401, "GET", "/v2/pods?token=hush", "", "Authorization: Bearer key-of-nobody")
		records, err := log.Read(t.Context(), audit.Query{Limit: 3})
		if err != nil || len(records) != 3 {
			t.Fatalf("Read = %v, %v", records, err)
		}
		for i, want := range []audit.Record{
			{Kind: audit.Refusal, Key: "1f212100", Operation: "listPods", Path: "/v2/pods", Status: 401},
			{Kind: audit.Change, User: "carol", Key: made.field("id"), Operation: "updateSshKeys", Path: "/v2/account/ssh-keys", Status: 200},
			{Kind: audit.Change, User: "root", Key: "fcf206e2", Operation: "createKey", Path: "/v2/account/keys", Record: made.field("id"), Owner: "carol", Agent: "curl/8", Status: 201},
		} {
			want.Source, want.Time = "192.0.2.7", records[i].Time
			if diff := cmp.Diff(want, records[i]); diff != "" {
				t.Errorf("record %d (-want +got):\n%s", i, diff)
			}
		}
		text := w.want(200, "GET", "/v2/admin/audit", "", root).body
		for _, secret := range []string{made.field("key"), "key-of-nobody", "key-of-root", "hush", "AAAA"} {
			if strings.Contains(text, secret) {
				t.Errorf("the log has %q in it: %s", secret, text)
			}
		}
	})
}

func TestAnOperatorReadsTheNewestRecordsInPages(t *testing.T) {
	audited(t, func(w *testAPI, _ audit.Trail, root string) {
		for range 5 {
			w.want(200, "PUT", "/v2/account/ssh-keys", `{"keys":[]}`, root)
			advance(time.Second)
		}
		w.want(401, "GET", "/v2/pods", "", "Authorization:")
		for query, want := range map[string]int{
			"": 6, "?limit=2": 2, "?user=root": 5, "?user=bob": 0, "?operation=listPods": 1, "?before=2000-01-01T00:00:02Z": 2, "?before=2000-01-01T00:00:02Z&limit=1": 1, "?before=0001-01-01T00:00:01Z": 0,
			"?kind=refusal": 1, "?kind=change": 5, "?kind=dropped": 0, "?since=2000-01-01T00:00:02Z": 4, "?since=2000-01-01T00:00:02Z&before=2000-01-01T00:00:04Z": 2, "?since=2000-01-01T00:00:02Z&kind=refusal": 1,
		} {
			if list := w.want(200, "GET", "/v2/admin/audit"+query, "", root).body; strings.Count(list, `"time":`) != want || !strings.HasPrefix(list, `{"records":[`) {
				t.Errorf("%s lists %s, want %d records", query, list, want)
			}
		}
		for query, want := range map[string]string{
			"?limit=0": "limit must be an integer from 1 to 1000", "?before=now": "before must be a time as in RFC 3339",
			"?before=0001-01-01T00:00:00Z": "before must be after 0001-01-01T00:00:00Z and before the year 10000",
			"?since=now":                   "since must be a time as in RFC 3339", "?kind=all": "kind must be one of change, refusal, dropped",
			"?user=": "user must not be empty", "?operation=": "operation must not be empty",
		} {
			if got := w.want(422, "GET", "/v2/admin/audit"+query, "", root).faults(t); got != want {
				t.Errorf("%s is refused with %q, want %q", query, got, want)
			}
		}
	})
}

func TestTheSourceIsTheLastAddressThatNoTrustedProxyHas(t *testing.T) {
	for _, tt := range []struct{ remote, forwarded, want string }{
		{"192.0.2.7:1", "", "192.0.2.7"},
		{"192.0.2.7:1", "203.0.113.9", "192.0.2.7"}, // not a trusted proxy
		{"10.0.0.1:1", "", "10.0.0.1"},
		{"10.0.0.1:1", "203.0.113.9", "203.0.113.9"},
		{"10.0.0.1:1", "198.51.100.1, 203.0.113.9", "203.0.113.9"}, // the client chose the first address
		{"10.0.0.1:1", "198.51.100.1, 203.0.113.9,10.0.0.2", "203.0.113.9"},
		{"10.0.0.1:1", "10.0.0.3, 10.0.0.2", "10.0.0.3"},
		{"10.0.0.1:1", "203.0.113.9:4711", "203.0.113.9"},
		{"10.0.0.1:1", "[2001:db8::1]:4711", "2001:db8::1"},
		{"10.0.0.1:1", "2001:db8::1", "2001:db8::1"},
		{"[::ffff:10.0.0.1]:1", "203.0.113.9", "203.0.113.9"},
		{"10.0.0.1:1", "203.0.113.9, unknown", "10.0.0.1"},
		{"10.0.0.1:1", "203.0.113.9, ", "10.0.0.1"},
		{"10.0.0.1:1", "1\n2", "10.0.0.1"},
		{"@", "203.0.113.9", ""},
	} {
		log := audit.NewMemory(1)
		h := httpapi.NewControl(httpapi.Services{SSHKeys: sshkeys.New(nil)}, &httpapi.Options{Audit: log, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
		r := httptest.NewRequestWithContext(t.Context(), "PUT", "/v2/account/ssh-keys", nil)
		r.RemoteAddr = tt.remote
		for part := range strings.SplitSeq(tt.forwarded, "/") {
			r.Header.Add("X-Forwarded-For", part)
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
		records, err := log.Read(t.Context(), audit.Query{Limit: 1})
		if err != nil || len(records) != 1 || records[0].Source != tt.want {
			t.Errorf("from %s forwarded for %q: %+v, %v, want %s", tt.remote, tt.forwarded, records, err, tt.want)
		}
	}
}

// A request that is not logged must not allocate for the log.
func TestARequestThatIsNotKeptAllocatesNothingForTheLog(t *testing.T) {
	count := func(log audit.Trail) float64 {
		known, err := httpapi.NewKeys(keys(time.Now), time.Now)
		if err != nil {
			t.Fatal(err)
		}
		h := httpapi.NewControl(httpapi.Services{SSHKeys: sshkeys.New(memory.NewSSHKeys())}, &httpapi.Options{Auth: known, Audit: log})
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/v2/account/ssh-keys", nil)
		r.Header.Set("Authorization", "Bearer "+aliceFree)
		return testing.AllocsPerRun(200, func() { h.ServeHTTP(httptest.NewRecorder(), r) })
	}
	if without, with := count(nil), count(audit.NewMemory(1)); with > without {
		t.Errorf("%v allocations with a log, %v without", with, without)
	}
}

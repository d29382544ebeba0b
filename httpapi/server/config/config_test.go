package config_test

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/process"
	"github.com/podyard/podyard/httpapi/server/config"
)

// wrong is the Error that a text is refused with.
func wrong(t *testing.T, text string) *config.Error {
	t.Helper()
	_, err := config.Parse("yard.json", []byte(text))
	var e *config.Error
	if !errors.As(err, &e) {
		t.Fatalf("%s: %v, want an Error", text, err)
	}
	return e
}

func TestAnErrorNamesFileLineColumnAndField(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text         string
		line, column int
		field, what  string
	}{
		{"{\n  \"quotas\": {\"hours\": 1}\n}", 2, 14, "quotas.hours", "unknown field"},
		{"{ // the keys\n  \"keys\": [{\"key\": \"k\", /* nobody */ \"user\": 1}]}", 2, 38, "keys[0].user", "cannot be a JSON number"},
		{`{"images":{"a/b":{"command":["x"],"dir":"here"}}}`, 1, 35, `images["a/b"].dir`, `must be absolute, not "here"`},
		{`{"catalog":`, 1, 12, "catalog", "unexpected EOF"},
		{`{"images":{"a":{"command":["x"],"allowEnv":["A","PYTHONPATH"]}}}`, 1, 49, `images.a.allowEnv[1]`, "PYTHONPATH decides what a program does and is never a user's"},
		{`{"processes":{"uids":{"count":1}}}`, 1, 15, "processes.uids", `there is no such setting any more: images of processes are for operators and the users in their "users", all run as processes.user, and strangers' code belongs in containers: take it out`},
		{`{"processes":{"writable":[]}}`, 1, 15, "processes.writable", "there is no such setting any more: processes in bubblewrap write to their own directories only, and others to what their user may: take it out"},
		{`{"processes":{"deny":null}}`, 1, 15, "processes.deny", "there is no such setting any more: processes have the network of this machine, and strangers' code belongs in containers: take it out"},
		{`{"processes":{"isolation":"off"}}`, 1, 15, "processes.isolation", `must be auto, required or none, not "off"`},
		{`{"processes":{"isolation":true}}`, 1, 15, "processes.isolation", "cannot be a JSON true"},
		{`{"processes":{"limit":-1}}`, 1, 15, "processes.limit", "must not be negative"},
		{`{"containers":{"localImages":[""]}}`, 1, 31, "containers.localImages[0]", "must not be empty"},
		{`{"containers":{"imageRecheck":-1}}`, 1, 16, "containers.imageRecheck", "must not be negative"},
		{`{"containers":{"subnet":"10.0.0.1/16"}}`, 1, 16, "containers.subnet", "has bits after its prefix: 10.0.0.0/16 is the block"},
		{`{"containers":{"isolation":"yes"}}`, 1, 16, "containers.isolation", `must be auto, required or off, not "yes"`},
		{`{"containers":{"deny":["10.0.0.0/8","a.test"]}}`, 1, 37, "containers.deny[1]", "must be a block of addresses, as 10.0.0.0/8"},
		{`{"containers":{"diskFree":100}}`, 1, 16, "containers.diskFree", "must be at most 99 percent"},
		{`{"processes":{"cgroup":"x"}}`, 1, 15, "processes.cgroup", `must be absolute, not "x"`},
		{`{"webhook":{"deny":["a.example","10.0.0.1/8"]}}`, 1, 33, "webhook.deny[1]", "has bits after its prefix: 10.0.0.0/8 is the block"},
		{`{"webhook":{"deny":["http://a.example"]}}`, 1, 21, "webhook.deny[0]", "must be a host name, *.suffix, an IP address or a CIDR block"},
		{`{"billing":{"days":7},"budgets":{"users":{"bob":{"costPerMonth":5}}}}`, 1, 13, "billing.days", "must be at least 31, or 0 for the default, where a user has a budget costPerMonth: what was spent in a month is known from what is kept"},
		{`{"billing":{"days":-2}}`, 1, 13, "billing.days", "must be from 1 to 36525, 0 for the default, or -1"},
		{`{"audit":{"files":-1}}`, 1, 11, "audit.files", "must be from 1 to 1000, or 0 for the default"},
		{`{"audit":{"fileBytes":100}}`, 1, 11, "audit.fileBytes", "must be from 65536 to 1073741824, or 0 for the default"},
		{`{"trustedProxies":["10.0.0.0/8","proxy"]}`, 1, 33, "trustedProxies[1]", `must be an address or a network like 10.0.0.0/8, not "proxy"`},
		{"{\n\t\"serviceDomain\": \"ü\", x\n}", 2, 24, "", "invalid character 'x' at start of value"},
		{`[]`, 1, 1, "", "must be a JSON object"},
		{`{"keys":[{"key":"k","user":"u"},{"key":"k","user":"v"}]}`, 1, 34, "keys[1].key", "key is there twice"},
		{`{"keys":[{"key":"k","user":"alice "}]}`, 1, 21, "keys[0].user", "must not begin or end with a blank, or have two together"},
		{"{\"keys\":[{\"key\":\"k\",\"user\":\"\u0430lice\"}]}", 1, 21, "keys[0].user", "must not mix Latin and Cyrillic letters: some of them look the same"},
		{`{"keys":[{"key":"k","user":"a\u200b"}]}`, 1, 21, "keys[0].user", "must not have the character U+200B: it cannot be seen, or changes how others are seen"},
		{`{} /* no end`, 1, 4, "", "invalid character '/' after top-level value"},
	} {
		e := wrong(t, tt.text)
		if e.File != "yard.json" || e.Line != tt.line || e.Column != tt.column || e.Field != tt.field || e.Err.Error() != tt.what {
			t.Errorf("%s:\n got %d:%d %q %q\nwant %d:%d %q %q", tt.text, e.Line, e.Column, e.Field, e.Err, tt.line, tt.column, tt.field, tt.what)
		}
	}
	if got, want := wrong(t, `{"catalog":"x"}`).Error(), `yard.json:1:2: catalog: must be host or sample, not "x"`; got != want {
		t.Errorf("the error reads %q, want %q", got, want)
	}
}

func TestAFileThatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	_, err := config.Read(filepath.Join(t.TempDir(), "none.json"))
	var e *config.Error
	if !errors.As(err, &e) || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "none.json") {
		t.Errorf("Read = %v, want an Error with the name of the file", err)
	}
	if c, err := config.Read(""); err != nil || !cmp.Equal(c.Catalog, "host") || len(c.Fields()) > 0 {
		t.Errorf("Read of no file = %+v, %v, want the default", c, err)
	}
}

func TestAByteOrderMarkAtTheHeadOfAFileIsNoFault(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "windows.json")
	if err := os.WriteFile(file, []byte("\ufeff{\r\n\"catalog\": \"sample\"\r\n}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := config.Read(file); err != nil || !cmp.Equal(c.Catalog, "sample") {
		t.Errorf("Read = %+v, %v, want the catalog sample", c, err)
	}
}

func TestCommentsAreWhereJavaScriptHasThem(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("yard.json", []byte(`// who may come
{
  "keys": [
    {"key": "a//b/*c*/", "user": "alice"}, // in a string it is none: \" neither
    /* {"key": "off", "user": "bob"},
    */
    {"key": "d\"//", "user": "carol"}
  ] // the end`+"\r\n}\n//"))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Keys) != 2 || c.Keys[0].Key != "a//b/*c*/" || c.Keys[1].Key != `d"//` {
		t.Errorf("keys %+v, want those outside of comments as they are", c.Keys)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{`{"keys":[{"key":"k","user":"u"}]} // x`, `{/*`, "{\"a\n//", `{"endpoints":[{"id":"a"}]}`, `"`, `{"secretKey":"\`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		_, err := config.Parse("x", text)
		var e *config.Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("%q: %T %v, want an Error", text, err, err)
		}
		if !bytes.Equal(before, text) {
			t.Error("the text was changed")
		}
	})
}

// loopback is an address that a server may listen on.
func loopback(t *testing.T) net.Addr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr()
}

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("yard.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestThePartsOfAConfigurationMakeAServer(t *testing.T) {
	t.Parallel()
	c := parse(t, `{"keys":[{"key":"bobs","user":"bob","scopes":["pods:read"]},{"key":"nobodys","user":"eve"}],"quotas":{"minute":2},
		"endpoints":[{"id":"py","image":"local/py","cpu":[{"id":"host","vcpuCount":2}]}],"images":{"local/py":{"command":["true"]}}}`)
	var log bytes.Buffer
	o := &config.Options{Data: t.TempDir(), Runtime: "process", Addr: loopback(t), Logger: slog.New(slog.NewTextHandler(&log, nil))}
	parts, err := config.Open(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := parts.Server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(key, path string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
		r.Header.Set("Authorization", "Bearer "+key)
		s.Handler().ServeHTTP(w, r)
		return w
	}
	if w := ask(parts.Key, "/v2/serverless/py"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "http://"+o.Addr.String()+"/v2/py/run") {
		t.Errorf("the endpoint of the file: %d %s, want 200 with addresses where the server listens", w.Code, w.Body)
	}
	for i, want := range []int{200, 200, 429} {
		if w := ask("bobs", "/v2/pods"); w.Code != want {
			t.Errorf("request %d with a key of the file: %d, want %d by its quotas", i+1, w.Code, want)
		}
	}
	if text := log.String(); !strings.Contains(text, "without scopes") || !strings.Contains(text, "keys[1]") {
		t.Errorf("the log is %q, want that keys[1] has no scopes", text)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	again, err := config.Open(t.Context(), c, o)
	if err != nil {
		t.Fatalf("the next Open = %v: something was left open", err)
	}
	if !parts.NewKey || again.NewKey || again.Key != parts.Key {
		t.Errorf("the key was new: %v, then %v, and is the same: %v; want it kept", parts.NewKey, again.NewKey, again.Key == parts.Key)
	}
	if err := again.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWhatTheProgramHasItselfIsRefusedInTheFile(t *testing.T) {
	t.Parallel()
	o := &config.Options{
		Data: filepath.Join(t.TempDir(), "data"), Runtime: "process",
		Images: map[string]process.Image{"own/web": {Command: []string{"true"}}}, Endpoints: []string{"echo"},
	}
	for text, field := range map[string]string{
		`{"images":{"own/web":{"command":["web"]}}}`: `images["own/web"]`,
		`{"endpoints":[{"id":"echo","image":"x"}]}`:  "endpoints[0].id",
		// It cannot launch any.
		`{"processes":{"isolation":"required"}}`: "processes",
		`{"processes":{"user":"nobody"}}`:        "processes",
	} {
		_, err := config.Open(t.Context(), parse(t, text), o)
		var e *config.Error
		if !errors.As(err, &e) || e.Field != field || e.Line != 1 {
			t.Errorf("%s: %v, want an Error of %s", text, err, field)
		}
	}
	if _, err := os.Stat(o.Data); err == nil {
		t.Error("the data directory was made all the same")
	}
}

func TestAnOptionThatCannotBeHadIsNamed(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	parts, err := config.Open(t.Context(), config.Default(), &config.Options{Data: data, Runtime: "process"})
	if err != nil {
		t.Fatal(err)
	}
	defer parts.Close(t.Context())
	for option, o := range map[string]*config.Options{
		"Data":    {Data: data, Runtime: "process"},
		"Runtime": {Runtime: "nonsense"},
		"Key":     {Runtime: "process", Key: "a b"},
	} {
		_, err := config.Open(t.Context(), config.Default(), o)
		var e *config.OptionError
		if !errors.As(err, &e) || e.Option != option {
			t.Errorf("%+v: %v, want an OptionError of %s", o, err, option)
		}
		if strings.Contains(err.Error(), "a b") {
			t.Errorf("%v shows a key", err)
		}
	}
}

func TestAServerThatFailsSaysAllOfItAndLeavesNothingOpen(t *testing.T) {
	t.Parallel()
	o := &config.Options{Data: t.TempDir(), Runtime: "process"}
	bad := parse(t, `{"endpoints":[{"id":"py","image":"x","timeout":1,"cpu":[{"id":"cpu9","vcpuCount":2}]}]}`)
	for range 2 {
		parts, err := config.Open(t.Context(), bad, o)
		if err != nil {
			t.Fatalf("Open = %v: the one before left something open", err)
		}
		_, err = parts.Server(t.Context())
		var e *config.Error
		if !errors.As(err, &e) || e.Line != 1 || e.Column < 38 || !strings.Contains(e.Error(), "endpoints[0].timeout") || !strings.Contains(e.Error(), `"cpu9"`) {
			t.Errorf("Server = %v, want an Error with both faults and the place of the first", err)
		}
	}
}

func TestCheckAndBackupOfAStore(t *testing.T) {
	t.Parallel()
	o := &config.Options{Data: t.TempDir(), Runtime: "process"}
	var out bytes.Buffer
	if err := config.Check(t.Context(), config.Default(), o, &out); err == nil || !strings.Contains(err.Error(), "there is no store") {
		t.Errorf("Check of nothing = %v, want that there is no store", err)
	}
	parts, err := config.Open(t.Context(), config.Default(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := config.Check(t.Context(), config.Default(), o, &out); err == nil || !strings.Contains(err.Error(), "another server uses this directory") {
		t.Errorf("Check of a store in use = %v, want that it is", err)
	}
	if err := parts.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := config.Check(t.Context(), config.Default(), o, &out); err != nil || !strings.Contains(out.String(), " 0 faults\n") {
		t.Errorf("Check = %v with %q, want no faults", err, out.String())
	}
	dir := filepath.Join(t.TempDir(), "copy")
	if err := config.Backup(t.Context(), config.Default(), o, dir); err != nil {
		t.Fatal(err)
	}
	copied := &config.Options{Data: dir, Runtime: "process"}
	if _, err := config.Open(t.Context(), config.Default(), copied); err == nil || !strings.Contains(err.Error(), "secret-key") {
		t.Errorf("Open of a copy without its key = %v, want that the key is missing", err)
	}
	key, err := os.ReadFile(filepath.Join(o.Data, "secret-key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "secret-key"), key, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := config.Check(t.Context(), config.Default(), copied, &out); err != nil {
		t.Errorf("Check of the copy = %v, want nil", err)
	}
}

func TestAProgramThatEverybodyMayHaveDoSomethingIsWarnedOf(t *testing.T) {
	for text, want := range map[string]int{
		`{"images":{"a":{"command":["a"],"users":["*"]},"b":{"command":["b"],"users":["u"],"allowArgs":true}}}`:                         0,
		`{"images":{"a":{"command":["a"],"users":["*"],"allowEnv":["MODE"]},"b":{"command":["b"],"users":["u","*"],"allowArgs":true}}}`: 2,
	} {
		c, err := config.Parse("yard.json", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		p, err := config.Open(t.Context(), c, &config.Options{Runtime: "process", Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if log.Len() > 0 {
			t.Errorf("lines before the server was made: %s", &log)
		}
		srv, err := p.Server(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := srv.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(log.String(), "every user may run this program"); got != want {
			t.Errorf("%s: %d warnings, want %d:\n%s", text, got, want, log.String())
		}
	}
}

func TestAUserOfProcessesThatThereIsNotIsNamed(t *testing.T) {
	o := &config.Options{Runtime: "process", Launch: []string{"launch"}}
	_, err := config.Open(t.Context(), parse(t, `{"processes":{"user":"nobody-of-this-name"}}`), o)
	var e *config.Error
	if !errors.As(err, &e) || e.Field != "processes.user" {
		t.Errorf("Open = %v, want an Error of processes.user", err)
	}
}

func TestTheStateShowsTheIsolationOfProcesses(t *testing.T) {
	s := newSite(t, `{}`)
	if got := s.want(200, s.parts.Key, "GET", "/v2/admin/state", ""); !strings.Contains(got, `"isolation":"none"`) {
		t.Errorf("state = %s, want that a program without a launcher isolates nothing", got)
	}
}

func TestAnEndpointOfTheConfigurationNeedsNoImage(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	err := withServer(t, data, `{"endpoints":[{"id":"captions"},{"id":"web","type":"LOAD_BALANCER"}]}`, func(s *site) {
		for id, balances := range map[string]bool{"captions": false, "web": true} {
			if e, err := s.srv.Services().Jobs.Endpoint(t.Context(), id); err != nil || e.Owner != "" || e.Container.Image != "" || e.Balances() != balances {
				t.Errorf("%s = %+v, %v", id, e, err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := withServer(t, data, `{"endpoints":[{"id":"captions"}]}`, func(*site) {}); err != nil {
		t.Errorf("the same once more: %v", err)
	}
	if err := withServer(t, data, `{"endpoints":[{"id":"py","image":"x","cpu":[{"id":"host","vcpuCount":2}]}]}`, func(*site) {}); err != nil {
		t.Fatal(err)
	}
	var e *config.Error
	if err := withServer(t, data, `{"endpoints":[{"id":"py"}]}`, func(*site) {}); !errors.As(err, &e) || e.Field != "endpoints[0]" || !strings.Contains(e.Error(), `image "x"`) {
		t.Errorf("an endpoint that loses its image: %v", err)
	}
}

func TestAnEndpointWithoutAnImageHasNoSettingsOfWorkers(t *testing.T) {
	t.Parallel()
	for text, field := range map[string]string{
		`{"endpoints":[{"id":"a","workers":{"max":1}}]}`: "endpoints[0].image",
		`{"endpoints":[{"id":"a","name":"b"}]}`:          "endpoints[0].image",
		`{"endpoints":[{"id":"a","type":"BATCH"}]}`:      "endpoints[0].type",
		`{"endpoints":[{"id":"a","type":1}]}`:            "endpoints[0].type",
		`{"endpoints":[{"id":"a"},{"id":"a"}]}`:          "endpoints[1].id",
	} {
		var e *config.Error
		if _, err := config.Parse("yard.json", []byte(text)); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v, want an Error of %s", text, err, field)
		}
	}
}

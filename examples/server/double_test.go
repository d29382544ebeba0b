package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestDoubleIsServedWithItsAreaAtAnotherAddress(t *testing.T) {
	t.Parallel()
	in := start(t, "-test", "127.0.0.1:0")
	area := strings.TrimPrefix(in.line(), "test area: ")
	ask := func(method, url, body string) (v map[string]any) {
		t.Helper()
		r, err := http.NewRequest(method, url, bytes.NewReader([]byte(body)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+in.key)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s %s = %d %s, %v, want 200", method, url, res.StatusCode, b, err)
		}
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	job, _ := ask("POST", in.url+"/v2/echo/run", `{"input":{"sleep_ms":300000}}`)["id"].(string)
	if got := ask("GET", in.url+"/v2/echo/status/"+job, "")["status"]; got != "IN_PROGRESS" {
		t.Errorf("status = %v, want IN_PROGRESS: the clock stands", got)
	}
	ask("POST", area+"/clock/advance", `{"ms":300000}`)
	if got := ask("GET", in.url+"/v2/echo/status/"+job, ""); got["status"] != "COMPLETED" || got["executionTime"] != 300000.0 {
		t.Errorf("status = %v, want COMPLETED after 300000 ms", got)
	}
	res, err := http.Get(in.url + "/_test")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusNotFound {
		t.Errorf("the area at the address of the API = %d, want 404", res.StatusCode)
	}
	in.stop()
}

func TestSettingsThatTheTestDoubleHasNoUseForAreNamedInTheLog(t *testing.T) {
	t.Parallel()
	config := file(t, `{"quotas":{"minute":5},"catalog":"host","images":{"local/x":{"command":["x"]}},"webhook":{"allowPrivate":true}}`)
	for want, args := range map[string][]string{
		"-data":       {"-data", t.TempDir()},
		"-runtime":    {"-runtime", "process"},
		"-public-url": {"-public-url", "https://pods.example.com"},
		"-data, catalog of the configuration, images of the configuration, webhook.allowPrivate of the configuration": {"-data", t.TempDir(), "-config", config},
		"": {"-data", "", "-runtime", "sim", "-config", file(t, `{"catalog":"sample"}`)},
	} {
		in := startCommand(t, command(t, nil, append([]string{"-addr", "127.0.0.1:0", "-test", "127.0.0.1:0"}, args...)...))
		in.line() // the area
		in.line() // the key
		in.stop()
		log := in.stderr.String()
		if want == "" && log != "" {
			t.Errorf("%s: the log says %q, want nothing", args, log)
		}
		if want != "" && !strings.Contains(log, `settings="`+want+`"`) && !strings.Contains(log, "settings="+want+"\n") {
			t.Errorf("%s: the log says %q, want it to name %s", args, log, want)
		}
	}
}

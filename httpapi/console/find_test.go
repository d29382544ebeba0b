package console_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// A search finds what the user may see, and takes any text.
func TestASearchFindsWhatTheKeyMaySee(t *testing.T) {
	bubble(t, nil, func(w *world) {
		var own, pod struct{ ID string }
		w.signIn(aliceKey)
		create := func(v any, path, body string) {
			a := w.want(http.StatusCreated, "POST", "/console/api/v2/"+path, body)
			check(t, json.Unmarshal(a, v))
		}
		create(&own, "serverless", `{"name":"sdxl-turbo","type":"QUEUE","image":"acme/sdxl:1","cpu":[{"id":"cpu3c","vcpuCount":2}],"workers":{"min":0,"max":1},"scaling":{"type":"QUEUE_DELAY","queueDelay":4}}`)
		create(&pod, "pods", `{"name":"sdxl-notebook","image":"acme/jupyter:2","cpu":{"id":"cpu3c","vcpuCount":2}}`)
		var job struct{ ID string }
		check(t, json.Unmarshal(w.want(http.StatusOK, "POST", "/console/api/v2/echo/run", `{"input":{}}`), &job))
		find := func(text string) (found []string) {
			t.Helper()
			var b struct {
				Found []struct{ Kind, Endpoint, ID string }
			}
			check(t, json.Unmarshal(w.want(http.StatusOK, "GET", "/console/data/find?q="+url.QueryEscape(text), ""), &b))
			for _, f := range b.Found {
				found = append(found, strings.TrimSpace(f.Kind+" "+f.ID))
			}
			return found
		}
		for text, want := range map[string]string{
			"SDXL": "endpoint " + own.ID + ", pod " + pod.ID, own.ID[3:]: "endpoint " + own.ID, job.ID[:6]: "job " + job.ID, job.ID: "job " + job.ID,
			"": "", "  ": "", strings.Repeat("a", 201): "", "no such thing": "", `%_"<>`: "",
		} {
			if got := strings.Join(find(text), ", "); got != want {
				t.Errorf("alice finds %q by %q, want %q", got, text, want)
			}
		}
		for key, want := range map[string]string{bobKey: "", readerKey: "", operatorKey: "endpoint " + own.ID + ", pod " + pod.ID} {
			w.signIn(key)
			if got := strings.Join(find("sdxl"), ", "); got != want {
				t.Errorf("%s finds %q, want %q", key, got, want)
			}
		}
		w.signIn(bobKey)
		if got := find(job.ID); len(got) != 0 {
			t.Errorf("bob finds the job of alice: %q", got)
		}
	})
}

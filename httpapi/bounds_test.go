package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
)

// What a user chooses of is kept with the record, and no budget counts it.
func TestListsOfChoicesAndIDsOfWorkersAreBounded(t *testing.T) {
	many := `["` + strings.Repeat(`US-KS-2","`, 100) + `US-KS-2"]`
	long := `["` + strings.Repeat("x", 201) + `"]`
	const pod = `{"name":"p","image":"i","cpu":{"id":"cpu3c","vcpuCount":2},"dataCenterIds":%s}`
	const endpoint = `{"name":"f","type":"QUEUE","image":"i","cpu":[{"id":"cpu3c","vcpuCount":2}],"scaling":{"type":"QUEUE_DELAY","queueDelay":4},"networkVolumes":%s}`
	bubble(t, func(w *testAPI) {
		for _, path := range []string{"/v2/pods " + pod, "/v2/serverless " + endpoint} {
			path, body, _ := strings.Cut(path, " ")
			if a := w.want(422, "POST", path, fmt.Sprintf(body, many), "Authorization: Bearer "+adminFree); !strings.Contains(a.body, "must have at most 100 items") {
				w.t.Errorf("%s with 101 choices: %s", path, a.body)
			}
			if a := w.want(422, "POST", path, fmt.Sprintf(body, long), "Authorization: Bearer "+adminFree); !strings.Contains(a.body, "/0: must have at most 200 bytes") {
				w.t.Errorf("%s with a choice of 201 bytes: %s", path, a.body)
			}
		}
		id := strings.Repeat("w", 200)
		w.want(200, "GET", "/v2/idle/ping/"+id, "", "Authorization: Bearer "+operatorFree)
		w.want(422, "GET", "/v2/idle/ping/"+id+"w", "", "Authorization: Bearer "+operatorFree)
	})
}

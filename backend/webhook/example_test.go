package webhook_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"

	"github.com/podyard/podyard/backend/webhook"
	"github.com/podyard/podyard/serverless/queue"
)

// A Sender posts the job with its input. Addresses that are not public are refused unless
// the program allows them.
func ExampleSender_Send() {
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println(r.Method, strings.Replace(string(body), "http://"+r.Host, "http://receiver", 1))
	}))
	defer receiver.Close()
	d := &queue.Delivery{ID: "msg_1", Job: queue.Job{
		Ref: queue.Ref{Endpoint: "echo", ID: "j1"}, Input: []byte(`{"n":1}`), Webhook: receiver.URL,
		State: queue.State{Status: queue.Cancelled},
	}}
	for _, allow := range []bool{false, true} {
		s, err := webhook.New(&webhook.Options{AllowPrivate: allow})
		if err != nil {
			fmt.Println(err)
			return
		}
		status, err := s.Send(context.Background(), d)
		fmt.Println(status, err != nil)
	}
	// Output:
	// 0 true
	// POST {"delayTime":0,"executionTime":0,"id":"j1","input":{"n":1},"status":"CANCELLED","webhook":"http://receiver"}
	// 200 false
}

func ExampleIsPublic() {
	for _, a := range []string{"93.184.216.34", "127.0.0.1", "169.254.169.254", "::1"} {
		fmt.Println(a, webhook.IsPublic(netip.MustParseAddr(a)))
	}
	// Output:
	// 93.184.216.34 true
	// 127.0.0.1 false
	// 169.254.169.254 false
	// ::1 false
}

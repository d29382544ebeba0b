package config_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/podyard/podyard/httpapi/server/config"
	"github.com/podyard/podyard/serverless/queue"
)

// send posts a webhook to a receiver on loopback, with the sender of a configuration, and
// returns the error.
func send(t *testing.T, text string, o config.Options) error {
	t.Helper()
	receiver := httptest.NewServer(http.NotFoundHandler())
	defer receiver.Close()
	o.Runtime = "sim"
	parts, err := config.Open(t.Context(), parse(t, text), &o)
	if err != nil {
		t.Fatal(err)
	}
	defer parts.Close(t.Context())
	_, err = parts.Options.Jobs.Sender.Send(t.Context(), &queue.Delivery{ID: "msg_1", Job: queue.Job{Webhook: receiver.URL}})
	return err
}

func TestWebhooksReachPrivateAddressesOnlyWhereNobodyElseReachesTheServer(t *testing.T) {
	t.Parallel()
	everywhere := &net.TCPAddr{IP: net.IPv4zero, Port: 8080}
	for _, tt := range []struct {
		name, text string
		o          config.Options
		allowed    bool
	}{
		{"loopback", `{}`, config.Options{Addr: loopback(t)}, true},
		{"loopback with a public URL", `{}`, config.Options{Addr: loopback(t), PublicURL: "https://pods.example.com"}, false},
		{"every address", `{}`, config.Options{Addr: everywhere}, false},
		{"no address", `{}`, config.Options{}, false},
		{"refused by the file", `{"webhook":{"allowPrivate":false}}`, config.Options{Addr: loopback(t)}, false},
		{"allowed by the file", `{"webhook":{"allowPrivate":true}}`, config.Options{Addr: everywhere, PublicURL: "https://pods.example.com"}, true},
	} {
		if err := send(t, tt.text, tt.o); (err == nil) != tt.allowed {
			t.Errorf("%s: Send to loopback = %v, want it allowed: %t", tt.name, err, tt.allowed)
		}
	}
}

func TestDeniedReceiversOfTheFileWinOverAllowPrivate(t *testing.T) {
	t.Parallel()
	err := send(t, `{"webhook":{"allowPrivate":true,"deny":["example.com","127.0.0.0/8"]}}`, config.Options{Addr: loopback(t)})
	if err == nil || !strings.Contains(err.Error(), "not allowed") {
		t.Errorf("Send to loopback = %v, want that it is not allowed", err)
	}
}

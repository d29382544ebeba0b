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
	return sendTo(t, receiver.URL, text, o)
}

func sendTo(t *testing.T, url, text string, o config.Options) error {
	t.Helper()
	o.Runtime = "sim"
	parts, err := config.Open(t.Context(), parse(t, text), &o)
	if err != nil {
		t.Fatal(err)
	}
	defer parts.Close(t.Context())
	_, err = parts.Options.Jobs.Sender.Send(t.Context(), &queue.Delivery{ID: "msg_1", Job: queue.Job{Webhook: url}})
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

// On a machine of a cloud its credentials are at such an address.
func TestTheDefaultOnLoopbackDoesNotReachTheMetadataOfAMachine(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"169.254.169.254", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "169.254.170.2", "168.63.129.16", "100.100.100.200", "[fd00:ec2::254]", "[fd20:ce::254]"} {
		err := sendTo(t, "http://"+host+"/latest", `{}`, config.Options{Addr: loopback(t)})
		if err == nil || !strings.Contains(err.Error(), "not allowed") {
			t.Errorf("Send to %s = %v, want that it is not allowed", host, err)
		}
	}
}

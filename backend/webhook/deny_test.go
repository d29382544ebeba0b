package webhook_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/podyard/podyard/backend/webhook"
)

func TestSendRefusesWhatIsDeniedAlsoWherePrivateAddressesAreAllowed(t *testing.T) {
	hits := 0
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits++ }))
	defer srv.Close()
	port := srv.URL[strings.LastIndex(srv.URL, ":"):]
	for _, tt := range []struct {
		deny, host string
	}{
		{"127.0.0.1", "127.0.0.1"},
		{"127.0.0.0/8", "[::ffff:127.0.0.1]"},
		{"::ffff:127.0.0.0/104", "127.0.0.1"},
		{"localhost", "LOCALHOST."},
		{"LocalHost.", "localhost"},
		{"*.localhost", "a.b.localhost"},
		{"bücher.example", ""}, // an error of New
		{"xn--bcher-kva.example", "bücher.example"},
		{"127.0.0.0/8", "0.0.0.0"},
		{"127.0.0.0/8", "[::]"},
		{"::1", "[::ffff:0.0.0.0]"},
		{"10.0.0.0/8", "[64:ff9b::a01:203]"},
		{"10.1.2.3", "[2002:a01:203::1]"},
		{"fe80::/10", "[fe80::1%25lo]"},
	} {
		s, err := webhook.New(&webhook.Options{AllowPrivate: true, Deny: []string{tt.deny}})
		if tt.host == "" {
			if err == nil || !strings.Contains(err.Error(), "xn--") {
				t.Errorf("New(deny %s) = %v, want that names are written in ASCII", tt.deny, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Send(t.Context(), delivery("http://"+tt.host+port+"/?token=hush"))
		if err == nil || err.Error() != "webhooks to this receiver are not allowed" {
			t.Errorf("deny %s: Send to %s = %v, want that it is not allowed, and no more", tt.deny, tt.host, err)
		}
	}
	if hits != 0 {
		t.Errorf("%d requests arrived, want none", hits)
	}
}

// A denied address is found after the name was resolved; which addresses it has is not told.
func TestSendComparesDeniedAddressesAfterTheNameWasResolved(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	url := strings.Replace(srv.URL, "127.0.0.1", "localhost", 1)
	s := sender(t, webhook.Options{AllowPrivate: true, Deny: []string{"127.0.0.0/8", "::1"}})
	if _, err := s.Send(t.Context(), delivery(url)); err == nil || err.Error() != "webhooks to this receiver are not allowed" {
		t.Errorf("Send to %s = %v, want that it is not allowed", url, err)
	}
}

func TestSendReachesWhatNoEntryDenies(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	url := strings.Replace(srv.URL, "127.0.0.1", "localhost", 1)
	s := sender(t, webhook.Options{AllowPrivate: true, Deny: []string{"*.localhost", "host", "10.0.0.0/8", "128.0.0.0/1"}})
	if status, err := s.Send(t.Context(), delivery(url)); status != http.StatusNotFound || err != nil {
		t.Errorf("Send = %d, %v, want the receiver's 404", status, err)
	}
}

func TestNewRefusesADenyEntryThatIsNone(t *testing.T) {
	for entry, want := range map[string]string{
		"": "host name", "*": "host name", "*.": "host name", "a.*.b": "host name", "a..b": "host name", "a b": "host name",
		"http://a.b": "host name", "a.b:80": "host name", "10.0.0.300": "host name", "10.0.0.0/33": "host name", "10/8": "host name",
		"10.0.0.1/8": "10.0.0.0/8", "fe80::1%lo": "zone", strings.Repeat("a.", 127) + "a": "host name",
	} {
		_, err := webhook.New(&webhook.Options{Deny: []string{"ok.example", entry}})
		if err == nil || !strings.Contains(err.Error(), "deny 1:") || !strings.Contains(err.Error(), want) {
			t.Errorf("New(deny %q) = %v, want an error with %q", entry, err, want)
		}
	}
	if _, err := webhook.New(&webhook.Options{Deny: []string{"a.example"}, Transport: http.DefaultTransport}); err == nil {
		t.Error("New with deny and a transport succeeded, want an error: the transport decides")
	}
}

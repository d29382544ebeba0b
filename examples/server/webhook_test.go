package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/examples/server/listen"
	"github.com/podyard/podyard/internal/suite"
)

// A post is what a receiver of webhooks got.
type post struct {
	header http.Header
	body   []byte
}

// receiver answers 200 to what it gets.
func receiver(t *testing.T) (url string, posts <-chan post) {
	t.Helper()
	got := make(chan post, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- post{r.Header.Clone(), b}
	}))
	t.Cleanup(srv.Close)
	return srv.URL, got
}

func TestAWebhookOfThisMachineIsPostedSignedByTheFirstSecret(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	url, posts := receiver(t)
	first, second := []byte("the first secret, 32 bytes long."), []byte("the second secret, as long again")
	whsec := func(b []byte) string { return "whsec_" + base64.StdEncoding.EncodeToString(b) }
	in := start(t, "-config", file(t, `{"webhook":{"secrets":["`+whsec(first)+`","`+whsec(second)+`"]}}`))
	j := get[job](in, "POST", "/v2/echo/run", `{"input":{"hello":"world"},"webhook":"`+url+`"}`, http.StatusOK)
	var p post
	select {
	case p = <-posts:
	case <-time.After(patience):
		t.Fatal("no webhook came")
	}
	var body struct {
		job
		Input json.RawMessage
	}
	if err := json.Unmarshal(p.body, &body); err != nil {
		t.Fatal(err)
	}
	if body.ID != j.ID || body.Status != "COMPLETED" || string(body.Output) != `{"hello":"world"}` || string(body.Input) != `{"hello":"world"}` {
		t.Errorf("the webhook brings %s, want the job that completed, with its input", p.body)
	}
	var want []string
	for _, secret := range [][]byte{first, second} {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(p.header.Get("Webhook-Id") + "." + p.header.Get("Webhook-Timestamp") + "."))
		mac.Write(p.body)
		want = append(want, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	if got := p.header.Get("Webhook-Signature"); got != strings.Join(want, " ") {
		t.Errorf("signature %q, want those of both secrets, the first one first: %q", got, want)
	}
}

func TestAWebhookToAPrivateAddressIsRefusedWhereTheConfigurationOrAPublicURLSaySo(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"not public":  {"-config", file(t, `{"webhook":{"allowPrivate":false}}`)},
		"not allowed": {"-config", file(t, `{"webhook":{"allowPrivate":true,"deny":["127.0.0.1"]}}`)},
		"public URL":  {"-public-url", "https://pods.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, posts := receiver(t)
			in := start(t, args...)
			get[job](in, "POST", "/v2/echo/runsync", `{"input":{},"webhook":"`+url+`"}`, http.StatusOK)
			select {
			case p := <-posts:
				t.Errorf("it was posted: %s", p.body)
			case <-time.After(500 * time.Millisecond): // of a post that is allowed it takes a few
			}
		})
	}
}

func TestAServerThatListensOnLoopbackOnlyMayPostToThisMachine(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]bool{
		"127.0.0.1:8080": true, "127.8.0.1:0": true, "[::1]:8080": true, "localhost:8080": true,
		":8080": false, "0.0.0.0:8080": false, "[::]:8080": false, "10.0.0.1:80": false, "example.com:80": false,
	} {
		if got := listen.IsLoopback(addr); got != want {
			t.Errorf("listen.IsLoopback(%q) = %v, want %v", addr, got, want)
		}
	}
}

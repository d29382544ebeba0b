package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
)

// A certificate is files that a test makes, and a client that trusts them.
type certificate struct {
	t         *testing.T
	cert, key string
	trusted   *x509.CertPool
}

func newCertificate(t *testing.T) *certificate {
	t.Helper()
	dir := t.TempDir()
	c := &certificate{t, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), x509.NewCertPool()}
	c.renew(1)
	return c
}

// renew writes other files with a serial number.
func (c *certificate) renew(serial int64) {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key)
	if err != nil {
		c.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		c.t.Fatal(err)
	}
	c.write(c.cert, "CERTIFICATE", der)
	c.write(c.key, "PRIVATE KEY", secret)
	c.trusted.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func (c *certificate) write(path, kind string, der []byte) {
	c.t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// ask makes a request on a connection of its own and returns the answer's status, protocol
// and the serial number of the certificate.
func (c *certificate) ask(req *http.Request) (status int, proto string, serial int64) {
	c.t.Helper()
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: c.trusted}, ForceAttemptHTTP2: true, DisableKeepAlives: true,
	}}
	resp, err := client.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.Proto, resp.TLS.PeerCertificates[0].SerialNumber.Int64()
}

func TestWithACertificateClientsUseTLSAndWorkersStillCome(t *testing.T) {
	t.Parallel()
	c := newCertificate(t)
	in := start(t, "-tls-cert", c.cert, "-tls-key", c.key)
	if !strings.HasPrefix(in.url, "https://127.0.0.1:") {
		t.Fatalf("listening on %q, want https", in.url)
	}
	if status, proto, _ := c.ask(in.request("POST", "/v2/hello/runsync", `{"input":{"name":"you"}}`)); status != http.StatusOK || proto != "HTTP/2.0" {
		t.Errorf("a job of a worker process = %d over %s, want 200 over HTTP/2.0", status, proto)
	}
	c.renew(2)
	if _, _, serial := c.ask(in.request("GET", "/healthz", "")); serial != 1 {
		t.Errorf("before a reload the certificate is number %d, want the first", serial)
	}
	if status, _, _ := c.ask(in.request("POST", "/v2/admin/reload", "")); status != http.StatusOK {
		t.Errorf("reload = %d, want 200", status)
	}
	if _, _, serial := c.ask(in.request("GET", "/healthz", "")); serial != 2 {
		t.Errorf("after a reload the certificate is number %d, want the second", serial)
	}
	if err := os.Remove(c.key); err != nil {
		t.Fatal(err)
	}
	if status, _, _ := c.ask(in.request("POST", "/v2/admin/reload", "")); status != http.StatusUnprocessableEntity {
		t.Errorf("reload without the key's file = %d, want 422", status)
	}
	if _, _, serial := c.ask(in.request("GET", "/healthz", "")); serial != 2 {
		t.Errorf("after a reload that failed the certificate is number %d, want the second", serial)
	}
}

func TestACertificateThatCannotBeIsNamed(t *testing.T) {
	t.Parallel()
	c := newCertificate(t)
	for _, flags := range [][]string{{"-tls-cert", c.cert}, {"-tls-key", c.key}, {"-tls-cert", c.cert, "-tls-key", c.cert}} {
		if text := refused(t, nil, append(flags, "-addr", "127.0.0.1:0", "-data", "")...); !strings.Contains(text, "-tls-cert, -tls-key: ") {
			t.Errorf("%v: %q does not name the flags", flags, text)
		}
	}
}

func TestTheEndIsAnnouncedToBalancersAndTheLogIsJSON(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := start(t, "-drain-wait", "10s", "-log", "json", "-log-level", "info")
	began := time.Now()
	if err := in.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server is not ready", func() bool {
		status, _ := in.do("GET", "/readyz", "")
		return status == http.StatusServiceUnavailable
	})
	if j := get[job](in, "POST", "/v2/echo/runsync", `{"input":{}}`, http.StatusOK); j.Status != "COMPLETED" {
		t.Errorf("a job before the end is %s, want COMPLETED", j.Status)
	}
	<-in.done
	if took := time.Since(began); took < 10*time.Second || in.cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("the server ended after %v with %d, want after 10 s with 0", took, in.cmd.ProcessState.ExitCode())
	}
	if log := in.stderr.String(); !strings.Contains(log, `"msg":"stopping"`) {
		t.Errorf("the log is not JSON: %s", log)
	}
}

package postgres_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/postgrestest"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods/volumes"
)

// certificate writes a certificate for 127.0.0.1, which is its own root, and its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	dir, err := os.MkdirTemp("", "podyard-tls") //nolint:usetesting // other users cannot enter that of the test
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	must(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644))
	must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600))
	if os.Getuid() == 0 { // the server runs as nobody
		nobody, err := user.Lookup("nobody")
		must(t, err)
		uid, err := strconv.Atoi(nobody.Uid)
		must(t, err)
		must(t, os.Chown(key, uid, -1))
	}
	return cert, key
}

func TestACertificateOfTheDatabaseIsChecked(t *testing.T) {
	suite.SkipUnlessLong(t)
	var server postgrestest.Server // of its own: it gets other settings
	t.Cleanup(server.Stop)
	database := server.Empty(t)
	cert, key := certificate(t)
	other, _ := certificate(t)
	server.Admin(t, "ALTER SYSTEM SET ssl_cert_file = '"+cert+"'", "ALTER SYSTEM SET ssl_key_file = '"+key+"'", "ALTER SYSTEM SET ssl = on")
	server.Restart(t, false, nil)
	with := func(root, host string) string {
		u, err := url.Parse(database)
		must(t, err)
		u.User, u.Host = url.UserPassword("postgres", "hush"), net.JoinHostPort(host, u.Port())
		u.RawQuery = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {root}}.Encode()
		return u.String()
	}
	s := openURL(t, with(cert, "127.0.0.1"))
	must(t, s.Volumes().Create(t.Context(), volumes.Volume{ID: "v", Owner: "alice"}))
	submit(t, s.Jobs(), newJob("a"))
	for what, url := range map[string]string{"another root": with(other, "127.0.0.1"), "another name": with(cert, "localhost")} {
		s, err := postgres.Open(t.Context(), url, nil)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "certificate") || strings.Contains(err.Error(), "hush") {
			t.Errorf("with %s Open = %v, want an error that names the certificate and not the password", what, err)
		}
	}
}

package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/podyard/podyard/internal/errno"
)

// certificate reads Options.TLSCert and TLSKey; nil where neither is set.
func (o *Options) certificate() (*tls.Certificate, error) {
	switch {
	case o.TLSCert == "" && o.TLSKey == "":
		return nil, nil
	case o.TLSCert == "":
		return nil, o.wrong("TLSCert", errors.New("the file of the certificate is missing: both files are needed"))
	case o.TLSKey == "":
		return nil, o.wrong("TLSKey", errors.New("the file of the key is missing: both files are needed"))
	}
	cert, err := tls.LoadX509KeyPair(o.TLSCert, o.TLSKey)
	if err != nil {
		return nil, o.wrong("TLSCert", err)
	}
	return &cert, nil
}

// TLS is for the listener of Options.Addr: HTTP/2 and HTTP/1.1 with the certificate of
// Options, which a reload reads again. It is nil without a certificate.
func (p *Parts) TLS() *tls.Config {
	if p.live.current.Load().cert == nil {
		return nil
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.live.current.Load().cert, nil },
	}
}

// certificateEnds is until when the present certificate is valid; zero: there is none.
func (p *Parts) certificateEnds() time.Time {
	now := p.live.current.Load()
	if now == nil || now.cert == nil || now.cert.Leaf == nil {
		return time.Time{}
	}
	return now.cert.Leaf.NotAfter
}

// workerAddr is where workers of this machine are sent; nil where none are started.
func (o *Options) workerAddr() net.Addr {
	if o.WorkerAddr != nil {
		return o.WorkerAddr
	}
	return o.Addr
}

// WorkerAddr is where workers of the last server that had this data directory were sent. They
// go on if the next server is there, too. It is empty where there was none.
func WorkerAddr(data string) (string, error) {
	if data == "" {
		return "", nil
	}
	b, err := os.ReadFile(filepath.Join(data, "address"))
	if errno.NotADirectory(err) && isFile(data) {
		return "", &OptionError{"Data", data, errors.New("is a file: it must be a directory, or not be there yet")}
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", &OptionError{"Data", data, fmt.Errorf("read the address: %w", err)}
	}
	addr, _, _ := strings.Cut(string(b), " ") // what follows is of the secret of their keys
	return addr, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

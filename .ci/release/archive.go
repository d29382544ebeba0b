package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"time"
)

// An entry is a file or, with a name that ends in "/", a directory of an archive.
type entry struct {
	name  string
	mode  int64
	body  []byte
	owner int // number of user and group
}

// writeTar writes entries with one time, so that the same entries give the same bytes.
func writeTar(to io.Writer, at time.Time, entries []entry) error {
	w := tar.NewWriter(to)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.body)), ModTime: at, Uid: e.owner, Gid: e.owner, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if e.name[len(e.name)-1] == '/' {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(e.body); err != nil {
			return err
		}
	}
	return w.Close()
}

func tarGzip(at time.Time, entries []entry) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.DefaultCompression)
	if err != nil {
		return nil, err
	}
	if err := writeTar(z, at, entries); err != nil {
		return nil, err
	}
	err = z.Close()
	return b.Bytes(), err
}

func writeZip(file string, at time.Time, entries []entry) error {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: at}
		h.SetMode(os.FileMode(e.mode))
		f, err := w.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := f.Write(e.body); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

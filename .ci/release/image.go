package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// nobody is the user in the image.
const nobody = 65532

// image writes an image for docker load and podman load: the program and certificates, and
// nothing else. The format is that of docker save, because that of OCI has no health check.
func (r *release) image(_ context.Context, t target) error {
	if t.os != "linux" {
		return nil
	}
	program, err := os.ReadFile(t.file)
	if err != nil {
		return err
	}
	certs, err := os.ReadFile(r.certs)
	if err != nil {
		return err
	}
	var files bytes.Buffer
	err = writeTar(&files, r.at, []entry{
		{"etc/", 0o755, nil, 0},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/\npodyard:x:65532:65532:podyard:/data:/\n"), 0},
		{"etc/group", 0o644, []byte("root:x:0:\npodyard:x:65532:\n"), 0},
		{"etc/ssl/", 0o755, nil, 0},
		{"etc/ssl/certs/", 0o755, nil, 0},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, certs, 0},
		{"data/", 0o700, nil, nobody},
		{"tmp/", 0o1777, nil, 0},
		{"podyard", 0o755, program, 0},
	})
	if err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil })
	if err != nil {
		return err
	}
	img, err := mutate.Append(empty.Image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.at}, CreatedBy: "podyard " + r.version}})
	if err != nil {
		return err
	}
	if img, err = mutate.ConfigFile(img, r.config(t, img)); err != nil {
		return err
	}
	tag, err := name.NewTag("podyard:" + r.version)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(r.name(t, ".image.tar"), tag, img)
}

func (r *release) config(t target, img v1.Image) *v1.ConfigFile {
	c, err := img.ConfigFile()
	if err != nil {
		return nil
	}
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Created = t.os, t.arch, v1.Time{Time: r.at}
	c.Config = v1.Config{
		User: "65532:65532", WorkingDir: "/data", Entrypoint: []string{"/podyard"}, Cmd: []string{"serve"},
		Env:          []string{"PATH=/", "PODYARD_ADDR=0.0.0.0:8080", "PODYARD_DATA=/data"},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}}, Volumes: map[string]struct{}{"/data": {}}, StopSignal: "SIGTERM",
		Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/podyard", "health"}, Interval: 10 * time.Second, Timeout: 6 * time.Second, StartPeriod: 20 * time.Second, Retries: 3},
		Labels: map[string]string{
			"org.opencontainers.image.title": "podyard", "org.opencontainers.image.version": r.version, "org.opencontainers.image.revision": r.commit,
		},
	}
	return c
}

package enginetest

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Image is one with a Go program as /program, which is its entrypoint, and nothing else but
// empty directories: the main package at path, as the go command takes it, built static.
func Image(path string) (v1.Image, error) { return image(path, 0o755) }

// SetuidImage is an Image whose program has the setuid bit of root.
func SetuidImage(path string) (v1.Image, error) { return image(path, 0o4755) }

// image is an Image whose program has a mode.
func image(path string, mode int64) (v1.Image, error) {
	dir, err := os.MkdirTemp("", "py")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system clears what stays
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "program"), path)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	program, err := os.ReadFile(filepath.Join(dir, "program"))
	if err != nil {
		return nil, err
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, d := range []string{"etc/", "tmp/"} {
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: d, Mode: 0o755})
	}
	_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "program", Mode: mode, Size: int64(len(program))})
	_, err = w.Write(program)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	made, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, made)
	if err != nil {
		return nil, err
	}
	return Configure(img, func(c *v1.ConfigFile) {
		c.Architecture, c.OS = runtime.GOARCH, "linux"
		c.Config.Entrypoint = []string{"/program"}
	})
}

// Configure is img with another configuration.
func Configure(img v1.Image, change func(*v1.ConfigFile)) (v1.Image, error) {
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	change(file)
	return mutate.ConfigFile(img, file)
}

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

// Image returns an image with a Go program as /program, which is the entrypoint, and empty
// directories. path is a main package, as the go command accepts it. The program is linked
// statically.
func Image(path string) (v1.Image, error) { return image(path, 0o755) }

// SetuidImage is Image, but the program is setuid root.
func SetuidImage(path string) (v1.Image, error) { return image(path, 0o4755) }

// image is Image, but the program has this file mode.
func image(path string, mode int64) (v1.Image, error) {
	dir, err := os.MkdirTemp("", "py")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // if this fails, files stay in the directory for temporary files
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

// Configure returns img with a changed configuration.
func Configure(img v1.Image, change func(*v1.ConfigFile)) (v1.Image, error) {
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	change(file)
	return mutate.ConfigFile(img, file)
}

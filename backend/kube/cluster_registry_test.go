package kube

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"runtime"
	"strings"
	"testing"

	"github.com/podyard/podyard/pods"
)

const registryUser, registryPassword = "registry-user", "registry-password"

// privateRegistry serves one image to those who have the password, and returns its name. The image has the
// program of PODYARD_KUBE_PROGRAM.
func privateRegistry(t *testing.T) string {
	t.Helper()
	program, err := os.ReadFile(os.Getenv("PODYARD_KUBE_PROGRAM"))
	if err != nil {
		t.Skip("PODYARD_KUBE_PROGRAM names no program for an image: .ci/kube has one")
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, dir := range []string{"etc/", "tmp/"} {
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755})
	}
	_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "program", Mode: 0o755, Size: int64(len(program))})
	_, _ = w.Write(program)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	blobs := map[string][]byte{}
	add := func(kind string, data []byte) map[string]any {
		sum := sha256.Sum256(data)
		digest := "sha256:" + hex.EncodeToString(sum[:])
		blobs[digest] = data
		return map[string]any{"mediaType": kind, "digest": digest, "size": len(data)}
	}
	text := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	l := add("application/vnd.oci.image.layer.v1.tar", layer.Bytes())
	config := add("application/vnd.oci.image.config.v1+json", text(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Entrypoint": []string{"/program"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []any{l["digest"]}},
	}))
	manifest := add(manifestType, text(map[string]any{"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": []any{l}}))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != registryUser || password != registryPassword {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		digest := path.Base(r.URL.Path)
		if digest == "1" {
			digest = manifest["digest"].(string)
		}
		if strings.Contains(r.URL.Path, "/manifests/") {
			w.Header().Set("Content-Type", manifestType)
			w.Header().Set("Docker-Content-Digest", digest)
		}
		_, _ = w.Write(blobs[digest])
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://") + "/private/tool:1"
}

func TestAPrivateImageIsForThoseWithItsCredentialOnACluster(t *testing.T) {
	api := realCluster(t)
	image := privateRegistry(t)
	r := openReal(t, api, nil)
	for i, c := range []struct {
		owner string
		pods.Credential
		want pods.Phase
	}{
		{"alice", pods.Credential{Username: registryUser, Password: registryPassword}, pods.PhaseHealthy},
		{"bob", pods.Credential{}, pods.PhaseFailed}, // the node has the image now
		{"bob", pods.Credential{Username: registryUser, Password: "guessed-password"}, pods.PhaseFailed},
	} {
		s := clusterProgram("run")
		s.PodID, s.Owner, s.Gen, s.Run, s.Image, s.Credential = "pod-"+string(rune('a'+i)), c.owner, 1, 1, image, c.Credential
		ensure(t, r, &s)
		got := await(t, r, s.PodID, c.want)
		if strings.Contains(got.Reason, registryPassword) || strings.Contains(got.Reason, "guessed-password") {
			t.Errorf("%s: the reason %q has the password", c.owner, got.Reason)
		}
	}
}

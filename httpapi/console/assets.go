package console

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed assets
var files embed.FS

// An asset is a file of the pages, with its bytes as they go over the wire.
type asset struct {
	kind        string // media type
	plain, zipd []byte
	tag         string // entity tag
}

// assets are all files of the pages. Their paths have the hash of all of them, so a browser
// keeps them for good and never mixes two versions.
type assets struct {
	hash    string
	by      map[string]asset
	modules []string // names of the JavaScript modules of the first visit, for preloading
	page    *template.Template
}

var mediaTypes = map[string]string{".mjs": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}

// later are the modules that a page loads when they are needed.
var later = []string{"forms.mjs", "records.mjs", "terminal.mjs", "vendor/addon-fit.mjs", "vendor/xterm.mjs"}

// loadAssets reads and packs the files once: they never change.
var loadAssets = sync.OnceValues(func() (*assets, error) {
	a := &assets{by: map[string]asset{}}
	whole := sha256.New()
	err := fs.WalkDir(files, "assets", func(name string, d fs.DirEntry, err error) error {
		kind := mediaTypes[path.Ext(name)]
		if err != nil || d.IsDir() || kind == "" {
			return err
		}
		b, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		name = strings.TrimPrefix(name, "assets/")
		sum := sha256.Sum256(b)
		_, _ = whole.Write(append([]byte(name), sum[:]...)) // it never fails
		a.by[name] = asset{kind, b, gzipped(b), `"` + hex.EncodeToString(sum[:16]) + `"`}
		if path.Ext(name) == ".mjs" && !slices.Contains(later, name) {
			a.modules = append(a.modules, name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(a.modules)
	a.hash = hex.EncodeToString(whole.Sum(nil)[:8])
	a.page, err = template.ParseFS(files, "assets/index.html")
	return a, err
})

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // the level exists
	_, _ = w.Write(b)                                       // a buffer takes everything
	_ = w.Close()
	return out.Bytes()
}

func (c *Console) serveAsset(w http.ResponseWriter, r *http.Request) {
	a, ok := c.assets.by[r.PathValue("name")]
	if !ok || r.PathValue("hash") != c.assets.hash {
		refuse(w, errNoPage)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	a.serve(w, r)
}

func (c *Console) serveIcon(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "public, max-age=3600")
	c.assets.by["favicon.svg"].serve(w, r)
}

func (a asset) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Etag", a.tag)
	h.Set("Vary", "Accept-Encoding")
	if r.Header.Get("If-None-Match") == a.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	b := a.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		b = a.zipd
	}
	h.Set("Content-Length", strconv.Itoa(len(b)))
	_, _ = w.Write(b) // the client may be gone
}

// servePage answers the one document of all pages. Scripts and styles need the nonce of the
// document: 'self' would allow those that a load-balancing endpoint serves on the same host.
func (c *Console) servePage(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || mediaTypes[path.Ext(r.URL.Path)] != "" {
		refuse(w, errNoPage)
		return
	}
	nonce := rand.Text()
	var b bytes.Buffer
	err := c.assets.page.Execute(&b, struct {
		Base, Assets, Nonce string
		Modules             []string
	}{c.Path, c.Path + "a/" + c.assets.hash + "/", nonce, c.assets.modules})
	if err != nil {
		refuse(w, err)
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'nonce-"+nonce+"'; style-src 'nonce-"+nonce+"'; img-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(b.Len()))
	_, _ = w.Write(b.Bytes()) // the client may be gone
}

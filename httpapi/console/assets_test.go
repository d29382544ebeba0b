package console_test

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// every calls f for each file of the pages.
func every(t *testing.T, f func(name, text string)) {
	t.Helper()
	err := filepath.WalkDir("assets", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		f(strings.TrimPrefix(filepath.ToSlash(path), "assets/"), string(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What others wrote is byte for byte what vendor.sh took.
func TestVendoredFilesHaveTheirHashes(t *testing.T) {
	sums, err := os.ReadFile("assets.sum")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for line := range strings.Lines(string(sums)) {
		if f := strings.Fields(line); len(f) == 5 && f[0] != "#" {
			listed[f[0]] = f[4]
		}
	}
	every(t, func(name, text string) {
		if !strings.HasPrefix(name, "vendor/") || strings.Contains(name, "LICENSE") {
			return
		}
		sum := sha256.Sum256([]byte(text))
		if got := hex.EncodeToString(sum[:]); got != listed[name] {
			t.Errorf("%s has the SHA-256 %s, assets.sum has %q", name, got, listed[name])
		}
		delete(listed, name)
	})
	for name := range listed {
		t.Errorf("assets.sum has %s, which is not there", name)
	}
}

// Nothing that came from a user or a worker can become a script or markup.
func TestPagesMakeNoMarkupOfText(t *testing.T) {
	bad := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|dangerouslySetInnerHTML|javascript:|srcdoc|setTimeout\(['"]|createContextualFragment|\son[a-z]+="|https?://[a-z0-9.-]+\.[a-z]{2,}`)
	every(t, func(name, text string) {
		if strings.HasPrefix(name, "vendor/") || name == "favicon.svg" {
			return
		}
		for i, line := range strings.Split(text, "\n") {
			if found := bad.FindString(line); found != "" {
				t.Errorf("%s:%d has %s", name, i+1, found)
			}
		}
	})
}

// The first visit takes less than 80 KB, and the next one only the document.
func TestPagesAreSmallAndKept(t *testing.T) {
	w := newWorld(t, nil)
	w.headers.Set("Accept-Encoding", "gzip")
	page := w.request("GET", "/console/", "")
	total, counted := page.Body.Len(), map[string]bool{}
	for _, m := range regexp.MustCompile(`(?:href|src)="(/console/a/[^"]+)"`).FindAllStringSubmatch(page.Body.String(), -1) {
		a := w.request("GET", m[1], "")
		if a.Code != http.StatusOK || a.Header().Get("Content-Encoding") != "gzip" || !strings.Contains(a.Header().Get("Cache-Control"), "immutable") || a.Header().Get("Etag") == "" {
			t.Errorf("%s = %d %v", m[1], a.Code, a.Header())
		}
		if !counted[m[1]] {
			counted[m[1]], total = true, total+a.Body.Len()
		}
		if _, err := gzip.NewReader(a.Body); err != nil {
			t.Errorf("%s: %v", m[1], err)
		}
		w.headers.Set("If-None-Match", a.Header().Get("Etag"))
		if again := w.request("GET", m[1], ""); again.Code != http.StatusNotModified || again.Body.Len() != 0 {
			t.Errorf("%s again = %d, want 304", m[1], again.Code)
		}
		w.headers.Del("If-None-Match")
	}
	if total > 80_000 {
		t.Errorf("the first visit takes %d bytes, want at most 80,000", total)
	}
	t.Logf("the first visit takes %d bytes", total)
	if page := page.Body.String(); strings.Contains(page, "xterm") || strings.Contains(page, "terminal") {
		t.Error("the first visit loads the terminal, which the page of a pod does when somebody opens one")
	}
	w.want(http.StatusNotFound, "GET", "/console/a/0000/app.mjs", "")
	w.want(http.StatusNotFound, "GET", "/console/app.mjs", "")
}

// The policy allows the scripts of the document itself and nothing else: not those that an
// endpoint serves on the same host.
func TestPolicyIsStrict(t *testing.T) {
	w := newWorld(t, nil)
	first, second := w.request("GET", "/console/", ""), w.request("GET", "/console/e/echo", "")
	p := first.Header().Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "script-src 'nonce-", "base-uri 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'", "form-action 'none'"} {
		if !strings.Contains(p, part) {
			t.Errorf("policy %q has no %s", p, part)
		}
	}
	if strings.Contains(p, "unsafe") || strings.Contains(p, "script-src 'self'") {
		t.Errorf("policy %q is not strict", p)
	}
	if p == second.Header().Get("Content-Security-Policy") {
		t.Error("two documents have one nonce")
	}
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-store", "X-Frame-Options": "DENY"} {
		for _, a := range []http.Header{first.Header(), w.request("GET", "/console/session", "").Header(), w.request("GET", "/console/data/overview", "").Header()} {
			if got := a.Get(name); got != want {
				t.Errorf("%s = %q, want %q", name, got, want)
			}
		}
	}
}

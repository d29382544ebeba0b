package main

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"strings"
	"time"
)

// A component is one of a CycloneDX document.
type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
	Hashes  []hash `json:"hashes,omitempty"`
}

type hash struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

// sbom lists the modules that are in a program, as the program itself has them (go version -m).
func (r *release) sbom(_ context.Context, t target) error {
	info, err := buildinfo.ReadFile(t.file)
	if err != nil {
		return err
	}
	parts := []component{{Type: "library", Name: "std", Version: strings.TrimPrefix(info.GoVersion, "go"), PURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}}
	for _, d := range info.Deps {
		m := *cmp.Or(d.Replace, d)
		parts = append(parts, component{Type: "library", Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + m.Version})
	}
	b, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata": map[string]any{
			"timestamp":  r.at.Format(time.RFC3339),
			"component":  component{Type: "application", Name: "podyard", Version: r.version, PURL: "pkg:golang/" + info.Main.Path + "@v" + r.version},
			"properties": []map[string]string{{"name": "go:GOOS", "value": t.os}, {"name": "go:GOARCH", "value": t.arch}, {"name": "commit", "value": r.commit}},
		},
		"components": parts,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.name(t, ".cdx.json"), append(b, '\n'), 0o644)
}

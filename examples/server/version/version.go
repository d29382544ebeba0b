// Package version knows which version the program is.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Number is the version of this source.
const Number = "0.2.0"

// What a release build sets:
//
//	go build -ldflags "-X github.com/podyard/podyard/examples/server/version.commit=..."
var (
	number = Number
	commit string
)

// An Info is what a build is.
type Info struct {
	Version string `json:"version"`
	Commit  string `json:"commit"` // "unknown" where the build has none
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// Build returns what this build is.
func Build() Info {
	c := commit
	if b, ok := debug.ReadBuildInfo(); ok && c == "" {
		c = ofBuild(b.Settings)
	}
	return Info{number, cmp.Or(c, "unknown"), runtime.Version(), runtime.GOOS, runtime.GOARCH}
}

// String returns the version, the commit and the Go release: "0.2.0 (commit 1f0c2ab) go1.26.8
// linux/amd64".
func String() string {
	b := Build()
	return fmt.Sprintf("%s (commit %s) %s %s/%s", b.Version, b.Commit, b.Go, b.OS, b.Arch)
}

// ofBuild returns the commit that the go command saw.
func ofBuild(settings []debug.BuildSetting) (commit string) {
	changed := ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = ", changed since"
		}
	}
	if commit == "" {
		return ""
	}
	return commit + changed
}

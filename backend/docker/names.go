package docker

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/types/image"
)

// An imageName is the full name of an image in a registry.
type imageName struct {
	full  string // with registry and tag or digest: docker.io/library/nginx:latest
	short string // the same in the short form: nginx:latest
}

var errImageID = errors.New("it is the id of an image on a host: use a name, with a digest if need be")

// parseImage parses the name of an image. An engine also accepts ids of images. A pod may
// not use an id, because no registry can say who may use it.
func parseImage(text string) (imageName, error) {
	ref, err := reference.ParseDockerRef(text)
	if strings.HasPrefix(text, "sha256:") || isHex64(text) {
		return imageName{}, fmt.Errorf("image %q: %w", text, errImageID)
	}
	if err != nil {
		return imageName{}, fmt.Errorf("image %q is not a name: %w", text, err)
	}
	return imageName{full: ref.String(), short: reference.FamiliarString(ref)}, nil
}

func isHex64(text string) bool {
	return len(text) == 64 && strings.Trim(text, "0123456789abcdef") == ""
}

// onHost returns the names that the image may have on the host. Podman puts a locally built
// image without a registry in its name under localhost.
func (n imageName) onHost(podman bool) []string {
	if podman && strings.HasPrefix(n.full, "docker.io/") {
		return []string{n.full, "localhost/" + n.short}
	}
	return []string{n.full}
}

// isNamed reports whether an image has the name full. Engines also find images by id, and
// Podman by the end of a name.
func isNamed(i *image.InspectResponse, full string) bool {
	return slices.ContainsFunc(slices.Concat(i.RepoTags, i.RepoDigests), func(name string) bool {
		ref, err := reference.ParseDockerRef(name)
		return err == nil && ref.String() == full
	})
}

// An imagePattern is an entry of Options.LocalImages.
type imagePattern string

// matches reports whether the pattern matches n. A pattern without a tag matches all tags.
func (p imagePattern) matches(n imageName) bool {
	return matchStar(string(p), n.short) || matchStar(string(p), n.full) ||
		!p.hasTag() && (matchStar(string(p), untagged(n.short)) || matchStar(string(p), untagged(n.full)))
}

func (p imagePattern) hasTag() bool { return untagged(string(p)) != string(p) }

// untagged returns a name without its tag and digest.
func untagged(name string) string {
	name, _, _ = strings.Cut(name, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		return name[:i]
	}
	return name
}

// matchStar reports whether text matches a pattern in which a star matches any text.
func matchStar(pattern, text string) bool {
	first, rest, found := strings.Cut(pattern, "*")
	if !found {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, first)
	if !ok {
		return false
	}
	parts := strings.Split(rest, "*")
	last := parts[len(parts)-1]
	for _, part := range parts[:len(parts)-1] {
		_, after, ok := strings.Cut(text, part)
		if !ok {
			return false
		}
		text = after
	}
	return strings.HasSuffix(text, last)
}

// CheckLocalImage returns an error if pattern cannot be an entry of Options.LocalImages.
func CheckLocalImage(pattern string) error {
	if pattern == "" {
		return errors.New("must not be empty")
	}
	if strings.ContainsAny(pattern, " \t\r\n") {
		return errors.New("must have no white space")
	}
	if strings.HasPrefix(pattern, "sha256:") || isHex64(pattern) {
		return errImageID
	}
	return nil
}

package httpapi

import (
	"time"

	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods"
)

// Rules of bodies that several areas share. Services check them.

// Patterns that services check by hand.
const (
	portPattern  = `^([1-9][0-9]{0,4})/(tcp|udp|http)$`
	imagePattern = `^[^\s\x00-\x1f\x7f]+$`
	cudaPattern  = `^[0-9]+\.[0-9]+$`
)

// inMillis returns a bound of a member in milliseconds.
func inMillis(d time.Duration) int { return int(d.Milliseconds()) }

// containerRules adds what container.Rules check.
func containerRules(s *openapi.Schema) *openapi.Schema {
	s.At("name").NotEmpty()
	s.At("image").Pattern = imagePattern
	s.At("disk").Between(1, container.MaxDisk)
	s.At("ports").MaxItems = container.MaxPorts
	s.At("ports").UniqueItems = true
	s.At("ports/*").Pattern = portPattern
	if registry := s.Properties["registry"]; registry != nil { // a cluster has none
		registry.NotEmpty()
	}
	return s
}

// idOrImage requires a template where there is no image.
func idOrImage(s *openapi.Schema) {
	s.At("templateId").NotEmpty()
	required := s.Required[:0]
	for _, name := range s.Required {
		if name != "image" {
			required = append(required, name)
		}
	}
	s.Required = required
	s.AnyOf = []*openapi.Schema{{Required: []string{"image"}}, {Required: []string{"templateId"}}}
}

func mountRules(s *openapi.Schema) {
	s.At("mounts/persistent/size").Between(pods.MinPersistentSize, pods.MaxStorage)
	s.At("mounts/persistent/path").NotEmpty()
	s.At("mounts/network").MaxItems = 1
	s.At("mounts/network/*/volumeId").NotEmpty()
	s.At("mounts/network/*/path").NotEmpty()
}

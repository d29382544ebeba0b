package memory_test

import (
	"testing"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/templates/templatestest"
)

func TestTemplates(t *testing.T) {
	templatestest.TestStore(t, func(*testing.T) templates.Store { return memory.NewTemplates() })
}

package memory_test

import (
	"testing"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/registries/registriestest"
)

func TestRegistries(t *testing.T) {
	registriestest.TestStore(t, func(*testing.T) registries.Store { return memory.NewRegistries() })
}

package memory_test

import (
	"testing"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/pods/secrets/secretstest"
)

func TestSecrets(t *testing.T) {
	secretstest.TestStore(t, func(*testing.T) secrets.Store { return memory.NewSecrets() })
}

package memory_test

import (
	"testing"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/pods/sshkeys/sshkeystest"
)

func TestSSHKeys(t *testing.T) {
	sshkeystest.TestStore(t, func(*testing.T) sshkeys.Store { return memory.NewSSHKeys() })
}

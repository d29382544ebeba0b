package memory_test

import (
	"testing"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/accounts/accountstest"
)

func TestAccounts(t *testing.T) {
	accountstest.TestStore(t, func(*testing.T) accounts.Store { return memory.NewAccounts() })
}

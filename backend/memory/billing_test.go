package memory_test

import (
	"testing"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/billing/billingtest"
)

func TestBilling(t *testing.T) {
	billingtest.TestStore(t, func(*testing.T) billing.Store { return memory.NewBilling() })
}

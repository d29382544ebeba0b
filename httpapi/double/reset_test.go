package double

import (
	"context"
	"testing"
	"testing/synctest"
)

func TestAResetThatAnotherOneOvertakesReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(nil)
		if err != nil {
			t.Fatal(err)
		}
		s.running = true // Run has not started the first new instance when there is a second
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- s.Reset(ctx, 1) }()
		synctest.Wait()
		go func() { _ = s.Reset(ctx, 2) }()
		synctest.Wait()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Reset = %v, want nil", err)
			}
		default:
			t.Error("Reset waits for an instance that is never made")
		}
		cancel()
	})
}

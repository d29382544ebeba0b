package serverless_test

import (
	"testing"
	"testing/synctest"

	"github.com/podyard/podyard/serverless/queue"
)

func TestWhySaysThatAJobWasGivenBackTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s)
		for range queue.MaxReleases {
			takeOne(t, s, "w")
			if err := s.Report(t.Context(), queue.Op{Ref: ref, Kind: queue.OpRelease, Worker: "w"}); err != nil {
				t.Fatal(err)
			}
		}
		wantWhy(t, s, ref, "workers that ended gave it back 10 times, so it waits at the end of its turn")
	})
}

package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/server"
)

// Each server has the stores of the one before.
func TestSchedulesOutliveServersAndEndWithTheKeysOfTheirOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := jobsOnly()
		stores.Schedules = memory.NewSchedules()
		serve := func(user string, f func(h http.Handler)) {
			s, err := server.New(t.Context(), &server.Options{Stores: stores, Workers: shouter, Keys: []httpapi.Key{
				{Secret: testKey, User: user, Scopes: []string{"endpoint:shout:run"}},
				{Secret: "another", User: "ann", Scopes: []string{"endpoint:shout:read", "endpoint:other:run", "pods:write"}},
			}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := context.WithCancel(t.Context())
			ended := later(func() error { return s.Run(ctx) })
			f(s.Jobs())
			end()
			if err := <-ended; err != nil {
				t.Errorf("Run = %v, want nil", err)
			}
		}
		path, outcomes := "/v2/shout/schedules", ""
		serve("ann", func(h http.Handler) {
			w := ask(t, h, "POST", path, `{"cron":"0 * * * *","run":{"input":{}},"catchUp":"last"}`)
			id := strings.Split(w.Body.String(), `"`)[3]
			path += "/" + id
			time.Sleep(time.Hour)
			synctest.Wait()
			outcomes = ask(t, h, "GET", path, "").Body.String()
			if n := strings.Count(outcomes, `"submitted"`); n != 1 {
				t.Errorf("after an hour the schedule is %s, want one job", outcomes)
			}
		})
		time.Sleep(time.Hour)
		serve("ann", func(h http.Handler) {
			synctest.Wait()
			outcomes = ask(t, h, "GET", path, "").Body.String()
			if n := strings.Count(outcomes, `"submitted"`); n != 2 {
				t.Errorf("the next server has %s, want another job", outcomes)
			}
		})
		serve("bob", func(http.Handler) { time.Sleep(2 * time.Hour) })
		serve("ann", func(h http.Handler) {
			outcomes = ask(t, h, "GET", path, "").Body.String()
			if !strings.Contains(outcomes, `"enabled":false`) || strings.Count(outcomes, `"disabled"`) != 1 {
				t.Errorf("after a server without the key the schedule is %s, want it disabled", outcomes)
			}
		})
	})
}

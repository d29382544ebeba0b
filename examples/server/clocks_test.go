package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// The step clocks of .ci/long builds a server whose clock can be moved by seconds.
const (
	clockProgram = "PODYARD_CLOCK_PROGRAM"
	clockMoved   = "PODYARD_CLOCK"
)

// startAt starts a server whose clock is moved.
func startAt(t *testing.T, data string, moved time.Duration) *instance {
	t.Helper()
	path := os.Getenv(clockProgram)
	if path == "" {
		t.Skip(clockProgram + " names no server whose clock can be moved: .ci/long clocks builds one")
	}
	cmd := command(t, []string{"PODYARD_API_KEY=" + testKey, fmt.Sprintf("%s=%d", clockMoved, int64(moved.Seconds()))}, "-addr", "127.0.0.1:0", "-data", data)
	moving := exec.Command(path, cmd.Args[1:]...)
	moving.Dir, moving.Env = cmd.Dir, cmd.Env
	return startCommand(t, moving)
}

func TestClocksThatWereAheadDoNotSilenceSchedulesOrJobs(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	ahead := startAt(t, data, time.Hour)
	id := get[struct{ ID string }](ahead, "POST", "/v2/echo/schedules", `{"cron":"* * * * *","run":{"input":{}}}`, http.StatusCreated).ID
	ahead.end(syscall.SIGKILL)
	right := startAt(t, data, 0)
	next := time.Time{}
	eventually(t, "the schedule fires within a minute of the right clock", func() bool {
		next = get[struct{ Next time.Time }](right, "GET", "/v2/echo/schedules/"+id, "", http.StatusOK).Next
		return next.Before(time.Now().Add(2 * time.Minute))
	})
	get[struct{ ID string }](right, "POST", "/v2/echo/runsync", `{"input":{"a":1}}`, http.StatusOK)
}

func TestClocksOfOtherTimesRunJobs(t *testing.T) {
	t.Parallel()
	for _, year := range []int{1971, 2038, 2040, 2100, 2200} {
		moved := time.Until(time.Date(year, 12, 31, 23, 59, 50, 0, time.UTC))
		t.Run(fmt.Sprint(year), func(t *testing.T) {
			in := startAt(t, t.TempDir(), moved)
			got := get[struct{ Status string }](in, "POST", "/v2/echo/runsync", `{"input":{"a":1}}`, http.StatusOK)
			if got.Status != "COMPLETED" {
				t.Errorf("a job is %s, want COMPLETED", got.Status)
			}
			at := get[struct{ Next time.Time }](in, "POST", "/v2/echo/schedules", `{"cron":"0 12 1 1 *","timeZone":"Europe/Berlin","run":{"input":{}}}`, http.StatusCreated).Next
			if want := time.Date(year+1, 1, 1, 11, 0, 0, 0, time.UTC); !at.Equal(want) {
				t.Errorf("noon of New Year's Day in Berlin is next at %v, want %v", at, want)
			}
			in.stop()
		})
	}
}

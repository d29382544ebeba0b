package incidents_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi/incidents"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// causesOf returns the causes and severities of a list.
func causesOf(list []incidents.Incident) string {
	var all []string
	for _, i := range list {
		all = append(all, string(i.Cause)+" "+string(i.Severity))
	}
	return strings.Join(all, ", ")
}

func TestWhatIsACauseAndWhatFollowsFromIt(t *testing.T) {
	slow := incidents.Endpoint{ID: "slow", Owner: "alice", Ready: 3, Oldest: ago(6 * time.Minute), Working: 1, Running: 1}
	alone := incidents.Endpoint{ID: "alone", Owner: "alice", Ready: 3, Oldest: ago(time.Minute)}
	crash := incidents.Endpoint{ID: "crash", Owner: "bob", Ready: 1, Oldest: ago(time.Hour), Fails: 4, Why: "exit code 1", FailsSince: ago(time.Minute)}
	throttled := incidents.Endpoint{ID: "throttled", Owner: "carol", Ready: 1, Oldest: ago(time.Hour), Throttled: 1}
	with := func(e incidents.Endpoint, f func(*incidents.Endpoint)) incidents.Endpoint { f(&e); return e }
	for name, c := range map[string]struct {
		s    incidents.Survey
		want string
	}{
		"nothing": {incidents.Survey{}, ""},
		"a paused endpoint is what its owner wanted": {incidents.Survey{Endpoints: []incidents.Endpoint{
			with(slow, func(e *incidents.Endpoint) { e.Paused = true }), with(crash, func(e *incidents.Endpoint) { e.Paused = true }),
		}}, ""},
		"jobs that are delayed wait for nobody":             {incidents.Survey{Endpoints: []incidents.Endpoint{{ID: "later", Owner: "alice"}}}, ""},
		"one crash is no loop":                              {incidents.Survey{Endpoints: []incidents.Endpoint{{ID: "e", Ready: 1, Fails: 1}}}, ""},
		"one image that does not start is enough":           {incidents.Survey{Endpoints: []incidents.Endpoint{{ID: "e", Owner: "alice", Ready: 1, Fails: 1, Unborn: true}}}, "image warning"},
		"a crash loop, and not that its jobs wait":          {incidents.Survey{Endpoints: []incidents.Endpoint{crash}}, "crashLoop warning"},
		"an endpoint of the operator without workers":       {incidents.Survey{Endpoints: []incidents.Endpoint{with(crash, func(e *incidents.Endpoint) { e.Owner = "" })}}, "crashLoop critical"},
		"a job that waits for less than 30 s":               {incidents.Survey{Endpoints: []incidents.Endpoint{with(alone, func(e *incidents.Endpoint) { e.Oldest = ago(20 * time.Second) })}}, ""},
		"nobody works":                                      {incidents.Survey{Endpoints: []incidents.Endpoint{alone}}, "noWorker warning"},
		"a worker that starts is somebody":                  {incidents.Survey{Endpoints: []incidents.Endpoint{with(alone, func(e *incidents.Endpoint) { e.Starting = 1 })}}, ""},
		"a budget that ends in an hour":                     {incidents.Survey{Costs: []incidents.Cost{{Owner: "alice", Ends: now.Add(time.Hour)}}}, "costSpent note"},
		"a budget that is used up":                          {incidents.Survey{Costs: []incidents.Cost{{Owner: "alice", Spent: true}}}, "costSpent note"},
		"a slow queue":                                      {incidents.Survey{Endpoints: []incidents.Endpoint{slow}}, "slowQueue warning"},
		"one incident for a full host, whoever waits":       {incidents.Survey{Endpoints: []incidents.Endpoint{throttled, with(throttled, func(e *incidents.Endpoint) { e.ID = "b" })}}, "hostFull warning"},
		"a full host that nobody waits for":                 {incidents.Survey{Hosts: []incidents.Host{{ID: "h", Full: []string{"vcpu"}}}}, ""},
		"a disk that is full comes before what it is about": {incidents.Survey{Refuses: "full", Short: true, Warning: "nearly full", Endpoints: []incidents.Endpoint{crash}}, "disk critical, crashLoop warning"},
		"damage": {incidents.Survey{Refuses: "damaged"}, "store critical"},
		"without the database nothing else is known": {incidents.Survey{Refuses: "gone", InDatabase: true, Endpoints: []incidents.Endpoint{crash}, PodsWaiting: 3}, "database critical"},
		"a certificate of two weeks and a second":    {incidents.Survey{Certificate: now.Add(14*24*time.Hour + time.Second)}, ""},
		"a certificate of a day":                     {incidents.Survey{Certificate: now.Add(24 * time.Hour)}, "certificate critical"},
		"a jump an hour ago":                         {incidents.Survey{Jumped: time.Hour, JumpedAt: ago(time.Hour)}, "clock warning"},
		"a jump longer ago":                          {incidents.Survey{Jumped: time.Hour, JumpedAt: ago(61 * time.Minute)}, ""},
		"the most severe first": {incidents.Survey{
			Endpoints: []incidents.Endpoint{slow, alone, throttled, crash}, Failed: []incidents.Pod{{Name: "p", Owner: "dave"}, {Name: "q", Owner: "dave"}},
			Receivers: []incidents.Route{{Host: "a.test", Owner: "alice"}, {Host: "a.test", Owner: "bob"}}, Lost: []incidents.LostServer{{Name: "two"}}, Warning: "nearly full",
		}, "serverLost critical, disk warning, crashLoop warning, hostFull warning, receiver warning, noWorker warning, slowQueue warning, podsFailed note"},
	} {
		c.s.At = now
		if got := causesOf(incidents.List(&c.s)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestAListIsBoundedWhateverUsersNameTheirThings(t *testing.T) {
	s := incidents.Survey{At: now}
	long := strings.Repeat("ä", 1000) + "\n"
	for i := range 200 {
		s.Endpoints = append(s.Endpoints, incidents.Endpoint{
			ID: fmt.Sprint(i, long), Name: long, Owner: fmt.Sprint(i, long), Ready: 1, Fails: 3, Why: long, Next: now.Add(time.Minute), Users: map[string]bool{"a": true, "b": true, "c": true, "d": true, "e": true, "f": true, "g": true},
		})
	}
	list := incidents.List(&s)
	if len(list) != incidents.MaxIncidents {
		t.Errorf("the list has %d incidents, want at most %d", len(list), incidents.MaxIncidents)
	}
	for _, i := range list {
		for _, x := range []string{i.ID, i.Name, i.Who[0]} {
			if n := len([]rune(x)); n > incidents.MaxName || strings.ContainsRune(x, '\n') {
				t.Errorf("%q has %d characters, want at most %d in one line", x, n, incidents.MaxName)
			}
		}
		if len([]rune(i.Detail)) > incidents.MaxDetail || !strings.HasSuffix(i.Detail, "next try in 1m0s") || len(i.Who) != incidents.MaxWho || i.More != 3 {
			t.Errorf("the incident is %+v", i)
		}
	}
}

func TestAnIncidentHasOneLineWhenItBeginsAndOneWhenItIsOver(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	var k incidents.Keeper
	x := []incidents.Incident{{Cause: incidents.CrashLoop, Severity: incidents.Warning, ID: "e", Name: "sdxl", Detail: "exit code 1"}}
	first := k.Update(t.Context(), now, x, logger)
	x[0].Detail = "exit code 2"
	later := k.Update(t.Context(), now.Add(3*time.Second), x, logger)
	if len(later) != 1 || !later[0].Since.Equal(first[0].Since) || later[0].Detail != "exit code 2" {
		t.Errorf("the same incident is %+v, then %+v", first, later)
	}
	if got := k.Update(t.Context(), now.Add(10*time.Second), nil, logger); len(got) != 1 {
		t.Errorf("an incident that was away for 7 s is gone: %v", got)
	}
	if got := k.Update(t.Context(), now.Add(20*time.Second), nil, logger); len(got) != 0 {
		t.Errorf("an incident stays that is over: %v", got)
	}
	if text := log.String(); strings.Count(text, "msg=incident ") != 1 || strings.Count(text, `msg="incident is over"`) != 1 || !strings.Contains(text, "exit code 1") {
		t.Errorf("the log is\n%s", text)
	}
}

func TestEveryCauseHasItsPlaceInTheOrder(t *testing.T) {
	all := incidents.Causes()
	if len(all) != 14 || len(slices.Compact(slices.Sorted(slices.Values(all)))) != len(all) {
		t.Errorf("Causes = %v, want fourteen different ones", all)
	}
}

func TestEveryCauseIsOnThePageForOperatorsAndOnTheScreen(t *testing.T) {
	for path, form := range map[string]string{"../../docs/trouble.md": "| `%s` |", "../console/assets/overview.mjs": " %s: '"} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range incidents.Causes() {
			if !strings.Contains(string(b), fmt.Sprintf(form, c)) {
				t.Errorf("%s does not say what %s is", path, c)
			}
		}
	}
}

func TestOneUserHidesNoIncidentsOfOthers(t *testing.T) {
	s := incidents.Survey{At: now}
	for n := range 200 {
		s.Endpoints = append(s.Endpoints, incidents.Endpoint{
			ID: fmt.Sprint("a", n), Owner: "alice", Ready: 1, Oldest: s.At.Add(-time.Minute), Fails: 9, Unborn: true, FailsSince: s.At.Add(-time.Hour), Why: "no such image",
		})
	}
	s.Receivers = []incidents.Route{
		{Host: "hook.example", Owner: "bob", Failures: 20, Since: s.At.Add(-time.Minute)},
		{Host: "hook.example", Owner: "carol", Failures: 9, Since: s.At.Add(-time.Second)},
	}
	list := incidents.List(&s)
	ofAlice := 0
	for _, i := range list {
		if i.Owner == "alice" {
			ofAlice++
		}
	}
	if ofAlice != incidents.MaxOfUser || !strings.HasSuffix(list[ofAlice-1].Act, "There are 195 more like this.") {
		t.Errorf("alice has %d incidents, the last of them %q, want %d and how many more there are", ofAlice, list[max(ofAlice-1, 0)].Act, incidents.MaxOfUser)
	}
	for _, user := range []string{"bob", "carol"} {
		if own := incidents.For(list, user); len(own) != 1 || own[0].Cause != incidents.Receiver || own[0].Who != nil {
			t.Errorf("%s sees %+v, want the receiver, and nothing of others", user, own)
		}
	}
}

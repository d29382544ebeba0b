package kube

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/podyard/podyard/pods"
)

// says makes the cluster answer with this log, whatever is asked for.
func says(api *apiServer, log *string) {
	api.PrependReactor("get", "pods/log", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &runtime.Unknown{Raw: []byte(*log)}, nil
	})
}

func readLog(t *testing.T, r *Runtime, id string) (texts []string) {
	t.Helper()
	var last pods.LogLine
	for line, err := range r.Logs(t.Context(), id, pods.LogQuery{Tail: -1}) {
		if err != nil {
			t.Fatal(err)
		}
		if line.Seq <= last.Seq || line.At.Before(last.At) {
			t.Errorf("line %+v comes after %+v", line, last)
		}
		last = line
		texts = append(texts, line.Text)
	}
	return texts
}

func TestALogIsCutIntoLinesAndHasNoMessagesOfTheKubelet(t *testing.T) {
	api := cluster(t)
	long := strings.Repeat("x", maxLine)
	log := "2026-11-29T12:00:00.5Z one\n2026-11-29T12:00:00.5Z two\r\n2026-11-29T12:00:00.6Z \n" +
		"unable to retrieve container logs for containerd://abc\n2026-11-29T12:00:00.7Z " + long + long + "\n2026-11-29T11:59:00Z last"
	says(api, &log)
	r := open(t, api, &Options{Instance: "test"})
	s := plain()
	s.Image = imageRuns
	ensure(t, r, s)
	await(t, r, s.PodID, pods.PhaseHealthy)
	got := readLog(t, r, s.PodID)
	if len(got) != 7 || got[0] != "one" || got[1] != "two" || got[2] != "" || got[3]+got[4]+got[5] != long+long || got[6] != "last" {
		t.Errorf("the log has %d lines, want one, two, an empty one, a long one in three parts, last", len(got))
	}
}

func TestOfEarlierRunsTheEndOfTheLogIsKept(t *testing.T) {
	api := cluster(t)
	log := ""
	for range spoolLines {
		log += "2026-11-29T12:00:00Z " + strings.Repeat("y", 100) + "\n"
	}
	log += "2026-11-29T12:00:00Z the end of run 3\n"
	says(api, &log)
	r := open(t, api, &Options{Instance: "test"})
	s := plain()
	s.Image = imageRuns
	ensure(t, r, s)
	await(t, r, s.PodID, pods.PhaseHealthy)
	s.Run++
	ensure(t, r, s)
	await(t, r, s.PodID, pods.PhaseHealthy)
	got, p := readLog(t, r, s.PodID), r.pods.Find(s.PodID)
	_, spool := p.logged()
	size := 0
	for _, line := range spool {
		size += len(line.Text)
	}
	if size > spoolSize || size < spoolSize*9/10 {
		t.Errorf("%d bytes of run 3 are kept, want nearly %d", size, spoolSize)
	}
	if n := len(spool); got[n-1] != "the end of run 3" || len(got) != n+spoolLines+1 {
		t.Errorf("the log has %d lines, want the %d that are kept, and those of run 4", len(got), n)
	}
	s.Gen++
	ensure(t, r, s)
	await(t, r, s.PodID, pods.PhaseHealthy)
	if _, spool := p.logged(); len(spool) != 0 {
		t.Errorf("%d lines of another generation are kept, want none", len(spool))
	}
}

func TestAReaderAsksForTheLinesAfterItsPlaceOnly(t *testing.T) {
	api := cluster(t)
	asked := make(chan *corev1.PodLogOptions, 1)
	api.PrependReactor("get", "pods/log", func(a clienttesting.Action) (bool, runtime.Object, error) {
		asked <- a.(clienttesting.GenericAction).GetValue().(*corev1.PodLogOptions).DeepCopy()
		return true, &runtime.Unknown{}, nil
	})
	r := open(t, api, &Options{Instance: "test"})
	s := plain()
	s.Image = imageRuns
	ensure(t, r, s)
	await(t, r, s.PodID, pods.PhaseHealthy)
	place := time.Date(2026, 11, 29, 12, 0, 5, 5, time.UTC)
	for range r.Logs(t.Context(), s.PodID, pods.LogQuery{After: place, Tail: 10}) {
		t.Error("there is a line")
	}
	if o := <-asked; o.SinceTime == nil || !o.SinceTime.Time.Equal(place.Add(-logOverlap)) || o.TailLines != nil {
		t.Errorf("asked for %+v, want what came since a second before %v", o, place)
	}
	for range r.Logs(t.Context(), s.PodID, pods.LogQuery{Tail: 10}) {
		t.Error("there is a line")
	}
	if o := <-asked; o.SinceTime != nil || o.TailLines == nil || *o.TailLines != 10+extraLines {
		t.Errorf("asked for %+v, want the last %d lines", o, 10+extraLines)
	}
}

package podstest

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
)

func diskCases() []RuntimeCase {
	return []RuntimeCase{{
		"TheDiskStaysForAnotherRun",
		"a larger run of the same generation finds the disk as it was",
		func(t *testing.T, h Harness) {
			s := h.pod(t, h.Programs.Counts)
			h.wantCounts(t, s, "disk 1")
			h.stop(t, s.PodID, time.Second)
			h.await(t, s, pods.PhaseExited)
			s.Run = 2
			h.wantCounts(t, s, "disk 2")
			s.Run = 3 // while it runs
			h.wantCounts(t, s, "disk 3")
		},
	}, {
		"AnotherGenerationWipesTheDiskAndKeepsMounts",
		"another generation replaces the container: its disk is wiped and its mounts are kept",
		func(t *testing.T, h Harness) {
			s := h.pod(t, h.Programs.Counts, func(s *pods.Spec) {
				s.Mounts = []pods.Mount{{Path: "/workspace", Size: 10}}
			})
			h.wantCounts(t, s, "disk 1", "mount 1")
			s.Gen, s.Run = 2, 2
			h.wantCounts(t, s, "disk 1", "mount 2")
			h.stop(t, s.PodID, time.Second)
			h.await(t, s, pods.PhaseExited)
			s.Gen, s.Run = 3, 3
			h.wantCounts(t, s, "disk 1", "mount 3")
		},
	}, {
		"RemoveDestroysLocalStorage",
		"a pod with the id of a removed one finds nothing of it",
		func(t *testing.T, h Harness) {
			s := h.pod(t, h.Programs.Counts, func(s *pods.Spec) {
				s.Mounts = []pods.Mount{{Path: "/workspace", Size: 10}}
			})
			h.wantCounts(t, s, "disk 1", "mount 1")
			h.remove(t, s.PodID)
			h.wantCounts(t, s, "disk 1", "mount 1")
		},
	}, {
		"ANetworkVolumeOutlivesItsPods",
		"a network volume is shared by the pods that mount it and stays when they are removed",
		func(t *testing.T, h Harness) {
			volume := newID()
			own := func(s *pods.Spec) { s.Mounts = []pods.Mount{{VolumeID: volume, Path: "/data"}} }
			first := h.pod(t, h.Programs.Counts, own)
			h.wantCounts(t, first, "disk 1", "mount 1")
			second := h.pod(t, h.Programs.Counts, own)
			h.wantCounts(t, second, "disk 1", "mount 2")
			h.remove(t, first.PodID)
			h.remove(t, second.PodID)
			h.wantCounts(t, h.pod(t, h.Programs.Counts, own), "disk 1", "mount 3")
		},
	}, {
		"ArgsAndEnvironmentArrive",
		"args and environment reach the program byte for byte",
		func(t *testing.T, h Harness) {
			s := h.pod(t, h.Programs.PrintsArgs, func(s *pods.Spec) {
				s.Args = append(s.Args, "plain", "two words", "", `"quoted" $HOME *`, "grüße")
				env := map[string]string{"TELL_A": "1", "TELL_EMPTY": "", "TELL_ODD": "a=b; $(c) 'd'\ne"}
				maps.Copy(env, s.Env)
				s.Env = env
			})
			h.up(t, s)
			want := []string{
				`arg "plain"`, `arg "two words"`, `arg ""`, `arg "\"quoted\" $HOME *"`, `arg "grüße"`,
				`env TELL_A="1"`, `env TELL_EMPTY=""`, `env TELL_ODD="a=b; $(c) 'd'\ne"`, "told",
			}
			if diff := cmp.Diff(want, h.linesUntil(t, s.PodID, "told", 1)); diff != "" {
				t.Errorf("what the program was given (-want +got):\n%s", diff)
			}
		},
	}, {
		"TheEntrypointComesFirst",
		"an entrypoint is the program in place of the image's, and args follow it",
		func(t *testing.T, h Harness) {
			s := h.pod(t, h.Programs.PrintsArgsByEntrypoint, func(s *pods.Spec) { s.Args = append(s.Args, "a b", "-c") })
			h.up(t, s)
			if diff := cmp.Diff([]string{`arg "a b"`, `arg "-c"`, "told"}, h.linesUntil(t, s.PodID, "told", 1)); diff != "" {
				t.Errorf("what the program was given (-want +got):\n%s", diff)
			}
		},
	}, {
		"PortsAnswer",
		"each tcp and http port is published, and a pod is Up when the program answers there",
		func(t *testing.T, h Harness) {
			s := h.served(t)
			got := h.up(t, s)
			h.wantAnswers(t, s, got)
		},
	}, {
		"PortsStay",
		"a pod keeps its public ports over runs and generations; those of a pod that has ended are not listed as live",
		func(t *testing.T, h Harness) {
			s := h.served(t)
			want := h.up(t, s).Ports
			s.Run = 2
			if diff := cmp.Diff(want, h.up(t, s).Ports); diff != "" {
				t.Errorf("ports of run 2 (-run 1 +run 2):\n%s", diff)
			}
			h.stop(t, s.PodID, time.Second)
			if got := h.await(t, s, pods.PhaseExited); len(got.Ports) != 0 {
				t.Errorf("stopped pod has live ports: %+v", got.Ports)
			}
			s.Gen, s.Run = 2, 3
			got := h.up(t, s)
			if diff := cmp.Diff(want, got.Ports); diff != "" {
				t.Errorf("ports of generation 2 (-want +got):\n%s", diff)
			}
			h.wantAnswers(t, s, got)
		},
	}}
}

// wantCounts starts s and compares what Programs.Counts prints in this run.
func (h Harness) wantCounts(t *testing.T, s pods.Spec, want ...string) {
	t.Helper()
	var seen pods.LogLine // the last line of earlier runs
	if lines := h.lines(t, s.PodID, pods.LogQuery{Tail: 1}); len(lines) > 0 {
		seen = lines[0]
	}
	h.up(t, s)
	want = append(want, "counted")
	var got []string
	h.until(t, "for the program to have counted", func() bool {
		got = texts(h.lines(t, s.PodID, pods.LogQuery{After: seen.At, AfterSeq: seen.Seq, Tail: -1}))
		return len(got) >= len(want) && got[len(got)-1] == "counted"
	})
	if diff := cmp.Diff(want, got[len(got)-len(want):]); diff != "" {
		t.Errorf("generation %d, run %d (-want +got):\n%s", s.Gen, s.Run, diff)
	}
}

func (h Harness) served(t *testing.T) pods.Spec {
	t.Helper()
	if h.Dial == nil {
		t.Skip("the ports of this runtime cannot be reached")
	}
	return h.pod(t, h.Programs.Serves, func(s *pods.Spec) {
		s.Ports = []pods.Port{{Private: 8888, Protocol: "http"}, {Private: 2222, Protocol: "tcp"}, {Private: 70000, Protocol: "tcp"}}
	})
}

func (h Harness) wantAnswers(t *testing.T, s pods.Spec, got pods.ContainerState) {
	t.Helper()
	for _, want := range []struct {
		port   pods.Port
		answer string
	}{{s.Ports[0], "port 8888"}, {s.Ports[1], "port 2222"}, {s.Ports[2], "port 70000"}} {
		i := slices.IndexFunc(got.Ports, func(m pods.PortMapping) bool {
			return m.Private == want.port.Private && m.Protocol == want.port.Protocol
		})
		if i < 0 {
			t.Errorf("port %+v is not among %+v", want.port, got.Ports)
			continue
		}
		var answer string
		var err error
		// A healthy pod listens on its first port; the second may open a moment later.
		h.until(t, "for an answer of "+want.answer, func() bool {
			answer, err = h.Dial(got.Ports[i])
			return err == nil
		})
		if answer != want.answer {
			t.Errorf("port %+v answers %q, want %q", got.Ports[i], answer, want.answer)
		}
	}
}

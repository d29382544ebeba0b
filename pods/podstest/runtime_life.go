package podstest

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/podyard/podyard/pods"
)

func lifeCases() []RuntimeCase {
	return []RuntimeCase{{
		"UnknownPodsAreNoErrors",
		"Stop and Remove of a pod that is not there are nil; it has no lines and no sample",
		func(t *testing.T, h Harness) {
			id := newID()
			h.stop(t, id, time.Second)
			h.remove(t, id)
			if s, ok := h.listed(t, id); ok {
				t.Errorf("List has a pod that never was: %+v", s)
			}
			if logs, ok := pods.As[pods.LogReader](h.Runtime); ok {
				for line, err := range logs.Logs(t.Context(), id, pods.LogQuery{Tail: -1, Follow: true}) {
					t.Errorf("Logs yields %+v, %v, want nothing", line, err)
				}
			}
			if sampler, ok := pods.As[pods.Sampler](h.Runtime); ok {
				if s, ok := sampler.Sample(t.Context(), id); ok {
					t.Errorf("Sample = %+v, want none", s)
				}
			}
		},
	}, {
		"EnsureLeadsToUp",
		"a container that runs and is healthy is Up, with generation, run and the time it started",
		func(t *testing.T, h Harness) {
			s := h.pod(t, h.Programs.Runs)
			got := h.up(t, s)
			if got.Started.IsZero() || got.ExitCode != 0 || got.Stopped || got.OOM {
				t.Errorf("Up is %+v, want Started set and no sign of an end", got)
			}
		},
	}, {
		"ListShowsWhatWasEnsured",
		"a pod is listed from when Ensure returned, with the generation and run that were asked for",
		func(t *testing.T, h Harness) {
			s := h.pod(t, h.Programs.Runs)
			h.ensure(t, s)
			got, ok := h.listed(t, s.PodID)
			if !ok || got.Gen != s.Gen || got.Run != s.Run {
				t.Errorf("List after Ensure has %+v, %t, want generation 1 and run 1", got, ok)
			}
		},
	}, {
		"EnsureAgainDoesNothing",
		"Ensure of the same generation and run is nil and changes nothing, whatever became of it",
		func(t *testing.T, h Harness) {
			s := h.pod(t, h.Programs.Runs)
			before := h.up(t, s)
			h.ensure(t, s)
			h.up(t, h.pod(t, h.Programs.Runs)) // so much time has passed
			if after := h.await(t, s, pods.PhaseHealthy); !after.Started.Equal(before.Started) {
				t.Errorf("started again at %v, first at %v", after.Started, before.Started)
			}
			h.stop(t, s.PodID, time.Second)
			h.await(t, s, pods.PhaseExited)
			h.ensure(t, s)
			h.up(t, h.pod(t, h.Programs.Runs))
			h.await(t, s, pods.PhaseExited)
		},
	}, {
		"ASmallerRunDoesNothing",
		"Run times at least: a run below the one of the container is nil and changes nothing",
		func(t *testing.T, h Harness) {
			s := h.pod(t, h.Programs.Runs, func(s *pods.Spec) { s.Run = 5 })
			before := h.up(t, s)
			old := s
			old.Run = 4
			h.ensure(t, old)
			if after := h.await(t, s, pods.PhaseHealthy); !after.Started.Equal(before.Started) {
				t.Errorf("run 4 restarted run 5")
			}
		},
	}, {
		"ALargerRunStartsAgain",
		"Ensure of the same generation and a larger run starts the container again, be it running or not",
		func(t *testing.T, h Harness) {
			s := h.pod(t, h.Programs.Runs)
			first := h.up(t, s)
			s.Run = 2
			second := h.up(t, s)
			if !second.Started.After(first.Started) {
				t.Errorf("run 2 started at %v, run 1 at %v", second.Started, first.Started)
			}
			h.stop(t, s.PodID, time.Second)
			h.await(t, s, pods.PhaseExited)
			s.Run = 3
			third := h.up(t, s)
			if !third.Started.After(second.Started) || third.Stopped {
				t.Errorf("run 3 is %+v, run 2 started at %v", third, second.Started)
			}
		},
	}, {
		"StopIsDownAndStopped",
		"a container that was asked to end is Down and Stopped; to stop it again is nil",
		func(t *testing.T, h Harness) {
			s := h.pod(t, h.Programs.Runs)
			h.up(t, s)
			for range 2 {
				h.stop(t, s.PodID, 10*time.Second)
				if got := h.await(t, s, pods.PhaseExited); !got.Stopped || got.OOM {
					t.Errorf("stopped pod is %+v, want Stopped", got)
				}
			}
		},
	}, {
		"StopRightAfterEnsureIsNotLost",
		"a Stop that comes while the container is being made ends it all the same",
		func(t *testing.T, h Harness) {
			s := h.pod(t, h.Programs.Runs)
			h.ensure(t, s)
			h.stop(t, s.PodID, time.Second)
			var got pods.ContainerState
			h.until(t, "for the end of the pod", func() bool {
				got, _ = h.listed(t, s.PodID)
				return got.Phase == pods.PhaseExited
			})
			if !got.Stopped {
				t.Errorf("stopped pod is %+v, want Stopped", got)
			}
		},
	}, {
		"StartRightAfterStopIsNotLost",
		"an Ensure of a larger run that comes while the container ends starts it once it has ended",
		func(t *testing.T, h Harness) {
			s := h.pod(t, h.Programs.Runs)
			h.up(t, s)
			h.stop(t, s.PodID, time.Second)
			s.Run = 2
			h.up(t, s)
		},
	}, {
		"GraceEndsInAKill",
		"a container that does not end when it is asked to is killed after the grace",
		func(t *testing.T, h Harness) {
			s := h.pod(t, h.Programs.IgnoresStop)
			h.up(t, s)
			h.stop(t, s.PodID, 100*time.Millisecond)
			got := h.await(t, s, pods.PhaseExited)
			if !got.Stopped || got.OOM || got.ExitCode != 137 {
				t.Errorf("killed pod is %+v, want Stopped with code 137", got)
			}
		},
	}, {
		"ALaterCallShortensTheGrace",
		"a Stop or a Remove that comes within the grace of an earlier Stop does not wait for that to be over",
		func(t *testing.T, h Harness) {
			s := h.pod(t, h.Programs.IgnoresStop)
			h.up(t, s)
			h.stop(t, s.PodID, 24*time.Hour)
			h.stop(t, s.PodID, 0)
			if got := h.await(t, s, pods.PhaseExited); !got.Stopped {
				t.Errorf("killed pod is %+v, want Stopped", got)
			}
			s.Run = 2
			h.up(t, s)
			h.stop(t, s.PodID, 24*time.Hour)
			done := make(chan error, 1)
			go func() { done <- h.Runtime.Remove(t.Context(), s.PodID, pollInterval) }()
			h.until(t, "for Remove", func() bool {
				select {
				case err := <-done:
					if err != nil {
						t.Errorf("Remove = %v, want nil", err)
					}
					return true
				default:
					return false
				}
			})
			if got, ok := h.listed(t, s.PodID); ok {
				t.Errorf("List has a removed pod: %+v", got)
			}
		},
	}, {
		"ExitCodesAreTold",
		"a container that ends by itself is Down with its exit code, and not Stopped",
		func(t *testing.T, h Harness) {
			for _, code := range []int{0, 1, 42} {
				s := h.exits(t, code)
				h.ensure(t, s)
				got := h.await(t, s, pods.PhaseExited)
				if got.ExitCode != code || got.Stopped {
					t.Errorf("pod is %+v, want code %d and not Stopped", got, code)
				}
			}
		},
	}, {
		"StopAfterAnExitChangesNothing",
		"Stop of a container that has ended is nil, and how it ended stays as it was",
		func(t *testing.T, h Harness) {
			s := h.exits(t, 3)
			h.ensure(t, s)
			h.await(t, s, pods.PhaseExited)
			h.stop(t, s.PodID, time.Second)
			h.up(t, h.pod(t, h.Programs.Runs))
			if got := h.await(t, s, pods.PhaseExited); got.ExitCode != 3 || got.Stopped {
				t.Errorf("pod is %+v, want code 3 and not Stopped", got)
			}
		},
	}, {
		"AMissingImageIsFailed",
		"an image that is not to be had is a Failed state with a reason, not an error; another generation can do better",
		func(t *testing.T, h Harness) {
			s := h.pod(t, h.Programs.Missing)
			h.ensure(t, s)
			if got := h.await(t, s, pods.PhaseFailed); got.Reason == "" {
				t.Errorf("failed pod is %+v, want a Reason", got)
			}
			h.stop(t, s.PodID, time.Second)
			s.Image, s.Args, s.Env, s.Gen, s.Run = h.Programs.Runs.Image, h.Programs.Runs.Args, h.Programs.Runs.Env, 2, 2
			if got := h.up(t, s); got.Reason != "" {
				t.Errorf("pod that is Up has the reason %q", got.Reason)
			}
		},
	}, {
		"RemoveLeavesNothing",
		"when Remove returns the pod is in no list and has no lines; to remove it again is nil; its id can be used again",
		func(t *testing.T, h Harness) {
			s := h.pod(t, h.Programs.Runs)
			h.up(t, s)
			for range 2 {
				h.remove(t, s.PodID)
				if got, ok := h.listed(t, s.PodID); ok {
					t.Fatalf("List has a removed pod: %+v", got)
				}
			}
			h.up(t, s)
		},
	}, {
		"RemoveIsForPodsInAnyPhase",
		"Remove works while a pod is made, after it ended and after it failed",
		func(t *testing.T, h Harness) {
			making := h.pod(t, h.Programs.Runs)
			h.ensure(t, making)
			stopped := h.pod(t, h.Programs.Runs)
			h.up(t, stopped)
			h.stop(t, stopped.PodID, time.Second)
			all := []pods.Spec{making, stopped}
			if h.Programs.Missing != nil {
				failed := h.pod(t, h.Programs.Missing)
				h.ensure(t, failed)
				h.await(t, failed, pods.PhaseFailed)
				all = append(all, failed)
			}
			for _, s := range all {
				h.remove(t, s.PodID)
				if got, ok := h.listed(t, s.PodID); ok {
					t.Errorf("List has a removed pod: %+v", got)
				}
			}
		},
	}, {
		"PodsRunSideBySide",
		"calls for different pods may come at once, and do not disturb each other",
		func(t *testing.T, h Harness) {
			specs := make([]pods.Spec, 6)
			for i := range specs {
				specs[i] = h.pod(t, h.Programs.Runs)
			}
			each := func(call func(s pods.Spec) error) {
				var calls sync.WaitGroup
				for _, s := range specs {
					calls.Go(func() {
						if err := call(s); err != nil {
							t.Errorf("pod %s: %v", s.PodID, err)
						}
					})
				}
				calls.Wait()
			}
			each(func(s pods.Spec) error { return h.Runtime.Ensure(t.Context(), s) })
			for _, s := range specs {
				h.await(t, s, pods.PhaseHealthy)
			}
			each(func(s pods.Spec) error { return h.Runtime.Stop(t.Context(), s.PodID, time.Second) })
			for _, s := range specs {
				h.await(t, s, pods.PhaseExited)
			}
			each(func(s pods.Spec) error { return h.Runtime.Remove(t.Context(), s.PodID, time.Second) })
			for _, s := range specs {
				if got, ok := h.listed(t, s.PodID); ok {
					t.Errorf("List has a removed pod: %+v", got)
				}
			}
		},
	}, {
		"RandomCallsEndAsTheLastOneSays",
		"whatever was called before and had not happened yet, the last call for a pod decides what becomes of it",
		func(t *testing.T, h Harness) {
			seed := h.Seed
			if seed == 0 {
				seed = uint64(time.Now().UnixNano())
			}
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 0))
			for range 4 {
				h.randomCalls(t, r)
			}
		},
	}, {
		"SamplesArePercentages",
		"the load of a running pod is from 0 to 100; a pod that has ended has none",
		func(t *testing.T, h Harness) {
			sampler, ok := pods.As[pods.Sampler](h.Runtime)
			if !ok {
				t.Skip("this runtime does not measure")
			}
			s := h.pod(t, h.Programs.Runs, func(s *pods.Spec) { s.VCPU, s.Memory = 1, 1 })
			h.up(t, s)
			got, ok := sampler.Sample(t.Context(), s.PodID)
			if !ok || got.CPU < 0 || got.CPU > 100 || got.Memory < 0 || got.Memory > 100 {
				t.Errorf("Sample = %+v, %t, want percentages", got, ok)
			}
			h.stop(t, s.PodID, time.Second)
			h.await(t, s, pods.PhaseExited)
			if got, ok := sampler.Sample(t.Context(), s.PodID); ok {
				t.Errorf("Sample of a stopped pod = %+v, want none", got)
			}
		},
	}, {
		"PodsAreKnownAfterReopening",
		"a server that was closed and opened again lists its pods: still Up, or Down and Stopped, and they can be started again",
		func(t *testing.T, h Harness) {
			if h.Reopen == nil {
				t.Skip("this runtime does not outlive its server")
			}
			s, ended := h.pod(t, h.Programs.Runs), h.pod(t, h.Programs.Runs)
			h.up(t, s)
			h.up(t, ended)
			h.stop(t, ended.PodID, time.Second)
			was := h.await(t, ended, pods.PhaseExited)
			h.Runtime = h.Reopen(t)
			got, ok := h.listed(t, s.PodID)
			if !ok || got.Gen != 1 || got.Run != 1 || got.Phase != pods.PhaseHealthy && (got.Phase != pods.PhaseExited || !got.Stopped) {
				t.Errorf("List after reopening has %+v, %t, want it Up or Down and Stopped", got, ok)
			}
			if got := h.await(t, ended, pods.PhaseExited); got.ExitCode != was.ExitCode || !got.Stopped {
				t.Errorf("stopped pod is %+v after reopening, was %+v", got, was)
			}
			s.Run = 2
			h.up(t, s)
			h.remove(t, s.PodID)
			h.remove(t, ended.PodID)
		},
	}}
}

// randomCalls makes some calls for a pod without waiting for their effects.
func (h Harness) randomCalls(t *testing.T, r *rand.Rand) {
	t.Helper()
	s := h.pod(t, h.Programs.Runs)
	last := ""
	for n := 1 + r.IntN(8); n > 0; n-- {
		switch r.IntN(4) {
		case 0:
			s.Run++
			h.ensure(t, s)
			last = "ensure"
		case 1:
			s.Gen, s.Run = s.Gen+1, s.Run+1
			h.ensure(t, s)
			last = "ensure"
		case 2:
			h.stop(t, s.PodID, time.Duration(r.IntN(20))*time.Millisecond)
			if last == "ensure" {
				last = "stop"
			}
		case 3:
			h.remove(t, s.PodID)
			last = ""
		}
	}
	switch last {
	case "ensure":
		h.await(t, s, pods.PhaseHealthy)
	case "stop":
		h.until(t, "for the end of the pod", func() bool {
			got, _ := h.listed(t, s.PodID)
			return got.Gen == s.Gen && got.Run == s.Run && got.Phase == pods.PhaseExited && got.Stopped
		})
	default:
		if got, ok := h.listed(t, s.PodID); ok {
			t.Errorf("List has a removed pod: %+v", got)
		}
	}
}

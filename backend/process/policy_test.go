package process

import (
	"maps"
	"slices"
	"testing"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

func TestOtherImagesAreForTheNextStartAndWhatRunsGoesOn(t *testing.T) {
	rt := open(t, t.TempDir())
	run := program("run")
	ensure(t, rt, spec("old", run))
	await(t, rt, "old", "run", phase(pods.PhaseHealthy))

	changed := maps.Clone(images(t))
	changed["new"] = changed["self"]
	delete(changed, "self")
	apply, err := rt.Reconfigure(changed, nil)
	if err != nil {
		t.Fatal(err)
	}
	run.Image = "new"
	ensure(t, rt, spec("early", run))
	await(t, rt, "early", "failure: the images are not in force", phase(pods.PhaseFailed))
	apply()
	ensure(t, rt, spec("late", run))
	await(t, rt, "late", "run", phase(pods.PhaseHealthy))
	await(t, rt, "old", "run", phase(pods.PhaseHealthy))
	again := spec("old", program("run"))
	again.Run = 2
	ensure(t, rt, again)
	await(t, rt, "old", "failure: its image is gone", phase(pods.PhaseFailed))
}

func TestImagesThatCannotBeChangeNothing(t *testing.T) {
	rt := open(t, t.TempDir())
	bad := map[string]Image{"bad": {Command: []string{"true"}, AllowEnv: []string{"PYTHONPATH"}}}
	if _, err := rt.Reconfigure(bad, nil); err == nil {
		t.Error("Reconfigure takes an image that lets users set PYTHONPATH")
	}
	if _, err := rt.Reconfigure(images(t), &Isolation{}); err == nil {
		t.Error("Reconfigure takes an isolation without a launcher")
	}
	var faults problem.Violations
	rt.Admit(pods.Spec{Image: "bad", Owner: "u", Args: []string{"a"}}, &faults)
	if err := faults.Err(nil); err != nil {
		t.Errorf("an image that was refused is known: %v", err)
	}
	if known := slices.Sorted(maps.Keys(rt.policy.Load().images)); !slices.Equal(known, slices.Sorted(maps.Keys(images(t)))) {
		t.Errorf("the images are %v", known)
	}
}

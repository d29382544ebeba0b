package podfleet

import (
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/endpoints"
)

// AdmitWorker implements endpoints.Admission. It asks every runtime of the fleet.
func (f *Fleet) AdmitWorker(owner string, c endpoints.Container, faults *problem.Violations) {
	entrypoint, args, err := pods.ParseCommand(c.Args)
	if err != nil {
		return // another check reports this fault of the request
	}
	// The ids of the endpoint and the worker are not known yet and do not matter.
	spec := pods.Spec{PodID: PodID("new", "new"), Owner: owner, Image: c.Image, Entrypoint: entrypoint, Args: args, Env: c.Env}
	for _, rt := range f.runtimes() {
		if a, ok := pods.As[pods.Admitter](rt); ok {
			a.Admit(spec, faults)
		}
	}
}

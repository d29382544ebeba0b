package podfleet

import (
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/endpoints"
)

// AdmitWorker implements endpoints.Admission: every runtime of the fleet is asked.
func (f *Fleet) AdmitWorker(owner string, c endpoints.Container, faults *problem.Violations) {
	args, err := pods.SplitArgs(c.Args)
	if err != nil {
		return // a fault of the request, which is reported without us
	}
	// Which endpoint and which worker is not known yet, and is all the same.
	spec := pods.Spec{PodID: PodID("new", "new"), Owner: owner, Image: c.Image, Args: args, Env: c.Env}
	for _, rt := range f.runtimes() {
		if a, ok := pods.As[pods.Admitter](rt); ok {
			a.Admit(spec, faults)
		}
	}
}

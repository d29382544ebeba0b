package pods

import (
	"slices"

	"github.com/podyard/podyard/problem"
)

// admit asks the runtimes that p may run on whether they accept c for its owner. It does not
// report faults of c itself: args that cannot be read are not passed on.
func (s *Service) admit(p *Pod, c Config, faults *problem.Violations) {
	entrypoint, args, err := ParseCommand(c.Args)
	if err != nil {
		return
	}
	spec := Spec{PodID: p.ID, Owner: p.Owner, Image: c.Image, Entrypoint: entrypoint, Args: args, Env: c.Env, User: c.Extras.User}
	var asked []Runtime
	for _, h := range s.order {
		rt := h.Runtime
		if !p.mayRunOn(h) || slices.ContainsFunc(asked, func(other Runtime) bool { return sameRuntime(rt, other) }) {
			continue
		}
		asked = append(asked, rt)
		if a, ok := As[Admitter](rt); ok {
			a.Admit(spec, faults)
		}
	}
}

// mayRunOn reports whether p is on h, or may come there when it has no host yet.
func (p *Pod) mayRunOn(h *Host) bool {
	if p.Placement.Host != "" {
		return p.Placement.Host == h.ID
	}
	return len(p.DataCenters) == 0 || slices.Contains(p.DataCenters, h.DataCenter)
}

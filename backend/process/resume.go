package process

import (
	"github.com/podyard/podyard/backend/process/internal/supervise"
	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

// resume finds out what has become of a pod of an earlier server. What takes time is a job: Open
// waits for nothing that a pod has made.
func (p *pod) resume(rec record) {
	p.rec = rec
	p.state, p.known, p.startInterrupted = rec.State, true, rec.Starting
	for _, port := range rec.Ports {
		p.r.ports.Reserve(port.UDP, port.Public)
	}
	if !rec.Starting && !rec.Running && rec.PID == 0 {
		return
	}
	p.do(func() { p.recover() })
}

// recover is the job that adopts a pod, or ends what is left of it.
func (p *pod) recover() {
	rec := &p.rec
	found := p.r.driver.Inspect(p.r.root.pod(p.id), rec.Starts)
	alive := found != nil
	if !alive {
		found = supervise.NewProc(p.r.root.pod(p.id), rec.Starts)
	}
	x := newProc(found)
	x.Cgroups, x.limits = rec.Cgroups, rec.Limits
	x.Old = supervise.Status{Start: rec.Starts, PID: rec.PID, StartTime: rec.StartTime}
	switch {
	case alive && !rec.Starting:
		p.supervise(x, rec.State)
		p.r.driver.Watch(x.Proc)
		return
	case alive:
		// It is unknown how far that start came. It is undone, and the next Ensure repeats it.
		p.r.driver.Watch(x.Proc)
		p.r.driver.Kill(x.Proc)
	default:
		p.r.driver.Remains(x.Proc)
	}
	if x.KillErr != nil {
		p.r.opts.Logger.Error("process: remains of a pod cannot be ended", "pod", p.id, "err", x.KillErr)
	}
	interrupted := rec.Starting
	rec.Starting, rec.Running, rec.PID = false, false, 0
	if interrupted {
		p.save()
		return
	}
	s := rec.State
	s.Phase, s.Ports = pods.PhaseExited, nil
	s.ExitCode, s.Reason, s.OOM = x.Exit.Code, x.Exit.Reason, x.Exit.OOM
	if podhost.Rebooted(rec.Boot) {
		s.HostWent, s.Stopped, s.OOM, s.Reason = true, true, false, "its host was restarted"
	}
	p.publish(s)
}

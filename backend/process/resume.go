package process

import (
	"errors"
	"io/fs"
	"os"

	"github.com/podyard/podyard/pods"
)

// resume finds out what has become of a pod of an earlier server.
func (p *pod) resume(rec record) {
	p.rec = rec
	p.state, p.known, p.startInterrupted = rec.State, true, rec.Starting
	for _, port := range rec.Ports {
		p.r.ports.Reserve(port.UDP, port.Public)
	}
	x := newProc(rec.PID, rec.StartTime, rec.Mark)
	x.cgroups, x.limits = rec.Cgroups, rec.Limits
	switch {
	case rec.Starting:
		// It is unknown how far that start came. It is undone, and the next Ensure repeats it.
		p.cleanUp(x)
		p.rec.Starting = false
	case rec.PID != 0 && x.alive():
		p.adopt(x)
	case rec.PID != 0:
		p.cleanUp(x)
		p.rec.PID = 0
		s := rec.State
		s.Phase, s.Ports = pods.PhaseExited, nil
		s.ExitCode, s.Reason = unknownExit.code, "it ended while no server watched it: its exit code is not known"
		p.publish(s)
	}
}

// adopt goes on with a process that another server started.
func (p *pod) adopt(x *proc) {
	raw, err := openRaw(p.r.root.raw(p.id, p.rec.Starts))
	if err != nil {
		// It keeps running without a log, which is better than ending it.
		p.r.opts.Logger.Error("process: output of a pod cannot be read", "pod", p.id, "err", err)
	}
	x.oom = p.r.oom.count()
	p.supervise(x, raw, p.out.position(p.rec.Starts), p.rec.State, x.orphanExit)
}

// cleanUp ends the processes that are left of a pod whose first process has ended, and stores
// its output.
func (p *pod) cleanUp(x *proc) {
	if err := x.sweep(); err != nil {
		p.r.opts.Logger.Error("process: remains of a pod cannot be ended", "pod", p.id, "err", err)
	}
	raw, err := os.OpenFile(p.r.root.raw(p.id, p.rec.Starts), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		p.r.opts.Logger.Error("process: output of a pod cannot be read", "pod", p.id, "err", err)
		return
	}
	ended := make(chan struct{})
	close(ended)
	t := tail{out: p.out, raw: raw, pos: p.out.position(p.rec.Starts), log: p.r.opts.Logger}
	t.run(ended)
}

// unknownExit is the end of a process that is not our child.
var unknownExit = exit{code: -1, reason: "it ended; it was started before the server was, so its exit code is not known"}

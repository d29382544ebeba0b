package pods

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/podyard/podyard/pods/telemetry"
)

// Why explains why a pod of owner does not run. It changes nothing, and may be out of date when it
// is read.
func (s *Service) Why(ctx context.Context, owner, id string) (telemetry.Explanation, error) {
	p, err := s.Get(ctx, owner, id)
	if err != nil {
		return telemetry.Explanation{}, err
	}
	e := p.explain()
	if host := p.Placement.Host; host != "" {
		if _, lives := s.placer.find(host); !lives {
			e.Text = strings.TrimSpace("Its host is not there: " + s.absence() + " " + e.Text)
			return e, nil
		}
	}
	if len(p.Placement.Claims) > 0 || p.stopping() {
		return e, nil // it has its place
	}
	w := p.placementRequest()
	if w.server, err = s.volumesServer(ctx, p); err != nil {
		return e, err
	}
	if e.Hosts, err = s.placer.refusals(ctx, &w); err != nil {
		return e, err
	}
	switch {
	case p.Placement.Host != "":
		e.Text += cannotStart(e.Hosts)
	case p.Want.Power == PowerOn:
		e.Text += noPlace(e.Hosts)
	}
	return e, nil
}

// absence says where a host has gone.
func (s *Service) absence() string {
	if s.shared != nil {
		return "the server that has it does not answer."
	}
	return "the configuration of the server does not have it any more."
}

// explain is Why of what the record of p says.
func (p *Pod) explain() telemetry.Explanation {
	e := telemetry.Explanation{Since: p.lastLine().At, Tries: p.Seen.Tries, Failure: p.Seen.Failure}
	if e.Tries > 0 {
		e.NextTry = p.Seen.RetryAt
		e.Since = cmp.Or(p.firstFailure(), e.Since)
		e.Text = "Its host did not take the call to " + p.pendingCall() + ". It is tried again."
		return e
	}
	switch status := p.Status(); {
	case p.stopping():
		e.Text = "It is being stopped, and its container has not ended yet."
	case status == Exited || status == Errored:
		e.Text = p.explainEnd()
	case p.Placement.Host == "":
		e.Text = "It waits for a host with room: it needs " + describeRequirements(p) + "."
	case status == Running:
		e.Since = time.Time{}
	case !p.accepted():
		e.Text = "Its host was not asked yet to start it."
	case p.Seen.Phase == PhasePulling:
		e.Text = "Its host makes the container, and first pulls the image " + p.Want.Applied.Image + " if it is not there."
		if p.Seen.Reason != "" {
			e.Text += " It says: " + p.Seen.Reason + "."
		}
	default:
		e.Text, e.Since = "Its container has started, and is not healthy yet.", p.Seen.Started
	}
	return e
}

// accepted reports whether the host has the container that is wanted.
func (p *Pod) accepted() bool { return p.Seen.Gen == p.Want.Gen && p.Seen.Run == p.Want.Run }

// pendingCall is the call that the host gets next.
func (p *Pod) pendingCall() string {
	switch p.Want.Power {
	case PowerOff:
		return "stop the container"
	case PowerTerminated:
		return "remove the container"
	}
	return "start the container"
}

// ranShortly is how short a run is that was perhaps not meant to end.
const ranShortly = 30 * time.Second

// explainEnd says how the last run of p has ended.
func (p *Pod) explainEnd() string {
	text := "It has ended: " + p.Seen.Reason + "."
	if p.Seen.Status == Errored {
		text = "It has failed: " + p.Seen.Reason + "."
	}
	if ran, ok := p.lastRun(); ok && ran < ranShortly && p.Want.Power == PowerOn {
		text += fmt.Sprintf(" That was %v after its start: its log may say why.", ran.Round(time.Millisecond))
	}
	return text
}

// lastRun is how long the last container of p ran, if it started.
func (p *Pod) lastRun() (ran time.Duration, ok bool) {
	for _, l := range slices.Backward(p.Journal) {
		switch {
		case l.Text == lineStarted:
			return p.lastLine().At.Sub(l.At), true
		case strings.HasPrefix(l.Text, lineMaking), strings.HasSuffix(l.Text, lineAsked):
			return 0, false
		}
	}
	return 0, false
}

// lastLine is the last line of the journal, or a line without text.
func (p *Pod) lastLine() LogLine {
	if n := len(p.Journal); n > 0 {
		return p.Journal[n-1]
	}
	return LogLine{}
}

// firstFailure is when the call of the present step has failed first.
func (p *Pod) firstFailure() time.Time {
	for _, l := range slices.Backward(p.Journal) {
		if strings.HasPrefix(l.Text, lineRefused) {
			return l.At
		}
	}
	return time.Time{}
}

// cannotStart is a sentence on the host that a pod without compute is bound to, which is the only
// one in list.
func cannotStart(list []telemetry.Refusal) string {
	if len(list) == 0 || list[0].Kind == telemetry.HostFits {
		return ""
	}
	return " It cannot start now: its host " + list[0].Text + "."
}

// noPlace says what keeps a pod from all hosts, without their names.
func noPlace(list []telemetry.Refusal) string {
	n := map[telemetry.RefusalKind]int{}
	for _, r := range list {
		n[r.Kind]++
	}
	var parts []string
	add := func(kind telemetry.RefusalKind, one, many string) {
		switch n[kind] {
		case 0:
		case 1:
			parts = append(parts, "1 host "+one)
		default:
			parts = append(parts, fmt.Sprintf("%d hosts %s", n[kind], many))
		}
	}
	add(telemetry.HostCordoned, "takes nothing new, because an operator has cordoned it", "take nothing new, because an operator has cordoned them")
	add(telemetry.HostFull, "is full", "are full")
	add(telemetry.HostTooSmall, "is too small, even when it is empty", "are too small, even when they are empty")
	add(telemetry.HostUnsuitable, "has other hardware, or is elsewhere", "have other hardware, or are elsewhere")
	text := ""
	if len(parts) > 0 {
		text = " " + strings.Join(parts, ", ") + "."
	}
	switch {
	case n[telemetry.HostFits] > 0:
		return text + " There is room now."
	case n[telemetry.HostCordoned]+n[telemetry.HostFull] == 0:
		return text + " No host of this service can take it: it would wait for ever."
	}
	return text
}

// refusals says of every host whether it takes w now.
func (r *Placer) refusals(ctx context.Context, w *PlacementRequest) ([]telemetry.Refusal, error) {
	cordons, err := r.cordons(ctx)
	if err != nil {
		return nil, err
	}
	fit := r.candidates(w)
	var list []telemetry.Refusal
	for _, h := range fit {
		x, err := r.refusal(ctx, h, w, cordons)
		if err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	if w.host != "" {
		return list, nil
	}
	for _, h := range r.all() {
		if !slices.Contains(fit, h) {
			list = append(list, telemetry.Refusal{Host: h.ID, Kind: telemetry.HostUnsuitable, Text: r.excluded(h, w)})
		}
	}
	return list, nil
}

// excluded says why h is no candidate for w.
func (r *Placer) excluded(h *Host, w *PlacementRequest) string {
	switch {
	case len(w.DataCenters) > 0 && !w.PreferDataCenters && !slices.Contains(w.DataCenters, h.DataCenter):
		return "is in " + h.DataCenter + ", where the pod may not be"
	case w.server != "" && r.shared.serverOf(h.ID) != w.server:
		return "is not of the server that has what is in its network volume"
	}
	return "has no global networking"
}

// cordons are the hosts that are cordoned, by what Cordon claims, and since when.
func (r *Placer) cordons(ctx context.Context) (map[string]time.Time, error) {
	since := map[string]time.Time{}
	for x, err := range r.store.Reservations(ctx) {
		if err != nil {
			return nil, fmt.Errorf("pods: list cordons: %w", err)
		}
		if strings.HasPrefix(x.Holder, cordonPrefix) {
			since[x.Holder] = x.Placement.Since
		}
	}
	return since, nil
}

func (r *Placer) refusal(ctx context.Context, h *Host, w *PlacementRequest, cordons map[string]time.Time) (telemetry.Refusal, error) {
	d := &w.Alternatives[0]
	x := telemetry.Refusal{Host: h.ID, Kind: telemetry.HostUnsuitable}
	switch since, cordoned := cordons[h.cordonResource()]; {
	case w.host == "" && d.Cloud != "" && !h.inCloud(d.Cloud):
		x.Text = "is not of the " + string(d.Cloud) + " cloud"
		return x, nil
	case w.host == "" && d.GPU != "" && !d.CUDA.match(r.cudaVersion(h, d.GPU)):
		x.Text = "has another version of CUDA"
		return x, nil
	case w.host == "" && d.GPU != "" && !d.gives(r.share(h, d.GPU)):
		s := r.share(h, d.GPU)
		x.Text = fmt.Sprintf("gives %d vCPUs and %d GB with each GPU", s.VCPU, s.Memory)
		return x, nil
	case cordoned:
		x.Kind, x.Since, x.Text = telemetry.HostCordoned, since, "takes nothing new, because an operator has cordoned it"
		if !since.IsZero() {
			x.Text += " at " + since.UTC().Format(time.RFC3339)
		}
		return x, nil
	}
	return x, r.refusedFor(ctx, h, d, &x)
}

// refusedFor says what of a resource h lacks for d.
func (r *Placer) refusedFor(ctx context.Context, h *Host, d *Requirements, x *telemetry.Refusal) error {
	list, err := r.resources(ctx, h)
	if err != nil {
		return fmt.Errorf("pods: look at what is free on %q: %w", h.ID, err)
	}
	needs := []Claim{{Resource: "gpu/" + d.GPU, Units: int64(d.Count)}}
	if d.GPU == "" {
		needs = []Claim{{Resource: "vcpu/" + d.CPU, Units: int64(d.VCPU)}}
		if h.Memory > 0 {
			needs = append(needs, Claim{Resource: "memory", Units: int64(r.memoryFor(d))})
		}
	}
	if d.GPU != "" && r.exceedsMaxCount(d) {
		x.Kind, x.Text = telemetry.HostTooSmall, fmt.Sprintf("is of a tier that has no machine with %d x %s", d.Count, d.GPU)
		return nil
	}
	x.Kind, x.Text = telemetry.HostFits, "has room"
	for _, need := range needs {
		i := slices.IndexFunc(list, func(c Claim) bool { return c.Resource == need.Resource })
		if i < 0 || list[i].Limit == 0 {
			x.Kind, x.Text = telemetry.HostUnsuitable, "has no "+unitsOf(need.Resource)
			return nil
		}
		switch has := list[i]; {
		case need.Units > has.Limit:
			x.Kind, x.Text = telemetry.HostTooSmall, fmt.Sprintf("is too small: it has %d %s, and the pod needs %d", has.Limit, unitsOf(need.Resource), need.Units)
			return nil
		case need.Units > has.Limit-has.Units:
			x.Kind, x.Text = telemetry.HostFull, fmt.Sprintf("is full: %d of its %d %s are free, and the pod needs %d", max(has.Limit-has.Units, 0), has.Limit, unitsOf(need.Resource), need.Units)
		}
	}
	return nil
}

// unitsOf names the units of a resource.
func unitsOf(resource string) string {
	switch kind, id, _ := strings.Cut(resource, "/"); kind {
	case "vcpu":
		return "vCPUs of " + id
	case "gpu":
		return id
	}
	return "GB of memory"
}

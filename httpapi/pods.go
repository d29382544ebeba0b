package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/telemetry"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
)

func podOperations() []operation {
	return slices.Concat(
		group(APIControl, AreaPods,
			op("listPods", "GET /v2/pods", ScopePodsRead, listPods, paginated, byOwners, heavy),
			op("createPod", "POST /v2/pods", ScopePodsWrite, createPod, keyed, bodyUpTo(maxPodBody)),
			op("getPod", "GET /v2/pods/{id}", ScopePodsRead, getPod, byOwnKey),
			op("updatePod", "PATCH /v2/pods/{id}", ScopePodsWrite, updatePod),
			op("deletePod", "DELETE /v2/pods/{id}", ScopePodsWrite, deletePod, byOwnKey),
			op("podAction", "POST /v2/pods/{id}/action", ScopePodsWrite, actOnPod, byOwnKey),
			op("whyPod", "GET /v2/pods/{id}/why", ScopePodsRead, whyPod, added),
			op("getPodOptions", "GET /v2/pods/{id}/options", ScopePodsRead, podOptions, added),
			op("getPodLogs", "GET /v2/pods/{id}/logs", ScopePodsRead, podLogs, staysOpen(budget.Streams)),
		),
		group(APILegacy, AreaPods,
			op("resetPod", "POST /v1/pods/{podId}/reset", ScopePodsWrite, resetPod),
		),
	)
}

func (b *describer) describePods() map[string]description {
	pod := openapi.For[podBody](&b.Builder)
	return map[string]description{
		"listPods": {summary: "List the caller's pods", answers: ok(withPagination(b.list("pods", pod, true))), params: []*openapi.Parameter{
			flag("includeClusterPods", "Also the pods of clusters."),
		}},
		"createPod": {
			summary: "Create a pod", text: "The answer does not imply that the pod runs: read its status. Exactly one of gpu and cpu must be there.",
			body: b.Component("CreatePodRequest", createPodBody()), answers: created(pod),
		},
		"getPod": {summary: "Get a pod", answers: ok(pod)},
		"updatePod": {
			summary: "Change a pod", text: "name and locked change at once, everything else at the next start, restart or reset.",
			body: b.Component("UpdatePodRequest", updatePodBody()), answers: ok(pod),
		},
		"deletePod": {summary: "Terminate a pod", text: "It cannot be undone.", answers: gone()},
		"podAction": {
			summary: "Start, stop, restart or terminate a pod", text: "The field actions of a pod has what its status allows now. terminate answers 204.",
			body: b.Component("PodActionRequest", actionBody()), answers: answers{http.StatusOK: pod, http.StatusNoContent: nil},
		},
		"whyPod": {
			summary: "Say why a pod does not run", text: "why is null while it runs. Operators also see what its host answered, and each host that was looked at.",
			answers: ok(openapi.For[whyBody](&b.Builder)),
		},
		"getPodOptions": {summary: "Get the settings of a pod that only this service has", text: "They are set by the member podyard of the bodies that create and change pods and templates.", answers: ok(openapi.For[extrasBody](&b.Builder))},
		"getPodLogs":    {summary: "Follow the log of a pod", text: aboutLogs, params: logParams(), answers: ok(openapi.Of("string")), media: "text/event-stream"},
		"resetPod":      {summary: "Recreate the container of a pod", text: "The disk of the container is wiped, and the image is pulled again.", answers: ok(pod)},
	}
}

func createPodBody() *openapi.Schema {
	s := containerRules(recorded(func(o *object) { o.createPod(&pods.CreateRequest{}) }))
	idOrImage(s)
	mountRules(s)
	s.At("mounts/persistent").Deprecated = true
	extrasRules(s)
	s.At("disk").Defaults(pods.DefaultDisk)
	s.At("cloud").Defaults(pods.DefaultCloud)
	s.At("gpu/id").NotEmpty()
	s.At("gpu/count").Between(1, container.MaxCount).Defaults(1)
	s.At("gpu/allowedCudaVersions/*").Pattern = cudaPattern
	s.At("gpu/minCudaVersion").Pattern = cudaPattern
	s.At("gpu/minRamPerGpu").Between(1, container.MaxCount)
	s.At("gpu/minVcpuCountPerGpu").Between(1, container.MaxCount)
	s.At("cpu/id").NotEmpty()
	s.At("cpu/vcpuCount").Between(2, container.MaxCount)
	return s
}

func updatePodBody() *openapi.Schema {
	s := containerRules(recorded(func(o *object) { o.updatePod(&pods.UpdateRequest{}) }))
	mountRules(s)
	extrasRules(s)
	s.At("templateId").NotEmpty()
	return s
}

func actionBody() *openapi.Schema { return recorded(func(o *object) { o.action() }) }

func listPods(c *call) error {
	members, err := c.queryFlag("includeClusterPods")
	if err != nil {
		return err
	}
	of, all := c.Pods.List, c.Pods.All
	if !members {
		of = func(ctx context.Context, owner string) ([]*pods.Pod, error) { return alone(c.Pods.List(ctx, owner)) }
		all = func(ctx context.Context) ([]*pods.Pod, error) { return alone(c.Pods.All(ctx)) }
	}
	list, err := ofOwner(c, of, all, func(p *pods.Pod) place { return place{p.Created, p.ID} })
	if err != nil {
		return err
	}
	return writeList(c, "pods", list, func(p *pods.Pod) string { return p.Owner }, c.pod)
}

func createPod(c *call) error {
	var r pods.CreateRequest
	if err := decode(c, &r, &r.Violations, (*object).createPod); err != nil {
		return err
	}
	r.Idempotency = c.keyed
	p, err := c.Pods.Create(c.r.Context(), c.owner, r)
	p, err = onceCreated(c, p, err, c.Pods.Get)
	if err != nil {
		return err
	}
	c.made = p.ID
	return writeJSON(c.w, http.StatusCreated, c.pod(p))
}

// writePod answers 200 with a pod, or returns err.
func (c *call) writePod(p *pods.Pod, err error) error {
	return writeRecord(c, p, err, c.pod)
}

func getPod(c *call) error {
	return c.writePod(c.Pods.Get(c.r.Context(), c.owner, c.r.PathValue("id")))
}

// A whyBody says why a pod does not run (docs/interface.md 2.23). Failure and Hosts are for
// operators.
type whyBody struct {
	Status  pods.Status   `json:"status"`
	Why     *string       `json:"why"` // nil: it runs
	Since   *wireTime     `json:"since"`
	Tries   int           `json:"tries"`
	NextTry *wireTime     `json:"nextTry"`
	Failure string        `json:"failure,omitempty"`
	Hosts   []refusalBody `json:"hosts,omitempty"`
}

type refusalBody struct {
	Host string                `json:"host"`
	Kind telemetry.RefusalKind `json:"kind"`
	Why  string                `json:"why"`
}

func whyPod(c *call) error {
	ctx, id := c.r.Context(), c.r.PathValue("id")
	p, err := c.Pods.Get(ctx, c.owner, id)
	if err != nil {
		return err
	}
	e, err := c.Pods.Why(ctx, c.owner, id)
	if err != nil {
		return err
	}
	b := whyBody{Status: p.Status(), Why: orNull(e.Text), Since: orNever(e.Since), Tries: e.Tries, NextTry: orNever(e.NextTry)}
	if c.id.Operator() {
		b.Failure = e.Failure
		for _, r := range e.Hosts {
			b.Hosts = append(b.Hosts, refusalBody{r.Host, r.Kind, r.Text})
		}
	}
	return writeJSON(c.w, http.StatusOK, b)
}

func updatePod(c *call) error {
	if err := c.podExists(); err != nil {
		return err
	}
	var r pods.UpdateRequest
	if err := decode(c, &r, &r.Violations, (*object).updatePod); err != nil {
		return err
	}
	return c.writePod(c.Pods.Update(c.r.Context(), c.owner, c.r.PathValue("id"), r))
}

// podExists is called before a body is read, because existence is checked first.
func (c *call) podExists() error {
	_, err := c.Pods.Get(c.r.Context(), c.owner, c.r.PathValue("id"))
	return err
}

func deletePod(c *call) error {
	return c.noContent(c.Pods.Terminate(c.r.Context(), c.owner, c.r.PathValue("id")))
}

// resetPod is the only operation of version 1.
func resetPod(c *call) error {
	return c.writePod(c.Pods.Reset(c.r.Context(), c.owner, c.r.PathValue("podId")))
}

func actOnPod(c *call) error {
	if err := c.podExists(); err != nil {
		return err
	}
	body, err := c.jsonBody()
	if err != nil {
		return err
	}
	a, err := decodeAction(body)
	if err != nil {
		return err
	}
	if a == pods.Terminate {
		return deletePod(c)
	}
	if c.id.Pod != "" && a != pods.Stop {
		return errForbidden
	}
	act := c.Pods.Act
	if c.id.Operator() {
		act = c.Pods.ActAsOperator
	}
	return c.writePod(act(c.r.Context(), c.owner, c.r.PathValue("id"), a))
}

func decodeAction(body []byte) (pods.Action, error) {
	var faults problem.Violations
	o, err := parse(body, strictThroughout, &faults)
	if err != nil {
		return "", err
	}
	return o.action(), faults.Err([]string{"action"})
}

func (o *object) action() pods.Action {
	o.require("action")
	a := o.oneOf("action", string(pods.Start), string(pods.Stop), string(pods.Restart), string(pods.Terminate))
	o.unknown()
	return pods.Action(a)
}

func (o *object) createPod(r *pods.CreateRequest) {
	o.require("name")
	r.TemplateID = o.template()
	if r.TemplateID == "" { // a template has an image
		o.require("image")
	}
	r.Name = o.text("name")
	r.Image = o.text("image")
	r.GPU, r.CPU = o.podGPU(), o.podCPU()
	r.Args, r.Entrypoint, r.Cmd = o.command()
	r.Disk = o.integer("disk")
	r.Ports = o.strings("ports")
	r.Env = o.env()
	r.Registry = o.registry()
	r.Mounts = o.mounts()
	r.Cloud = pods.Cloud(o.oneOf("cloud", string(pods.Secure), string(pods.Community)))
	r.DataCenterIDs = o.choices("dataCenterIds")
	if f := o.boolean("globalNetworking"); f != nil {
		r.GlobalNetworking = *f
	}
	r.StartSSH, r.StartJupyter = o.boolean("startSsh"), o.boolean("startJupyter")
	r.Extras = o.extras()
	o.unknown()
}

func (o *object) podGPU() *pods.GPURequest {
	sub := o.object("gpu")
	if sub == nil {
		return nil
	}
	defer sub.unknown()
	sub.require("id")
	return &pods.GPURequest{
		ID: sub.text("id"), Count: sub.integer("count"),
		AllowedCUDAVersions: sub.choices("allowedCudaVersions"), MinCUDAVersion: sub.str("minCudaVersion"),
		MinRAM: sub.integer("minRamPerGpu"), MinVCPU: sub.integer("minVcpuCountPerGpu"),
	}
}

func (o *object) podCPU() *pods.CPURequest {
	sub := o.object("cpu")
	if sub == nil {
		return nil
	}
	defer sub.unknown()
	sub.require("id", "vcpuCount")
	return &pods.CPURequest{ID: sub.text("id"), VCPU: sub.number("vcpuCount")}
}

func (o *object) updatePod(r *pods.UpdateRequest) {
	r.Name = o.str("name")
	r.Image = o.str("image")
	r.Args, r.Entrypoint, r.Cmd = o.command()
	r.Disk = o.integer("disk")
	r.Ports = o.strings("ports")
	r.Env = o.env()
	r.Registry = o.registry()
	r.Mounts = o.mounts()
	r.Locked = o.boolean("locked")
	r.GlobalNetworking = o.boolean("globalNetworking")
	r.TemplateID = o.template()
	r.Extras = o.extras()
	o.unknown()
}

// command reads the members that say what a container runs.
func (o *object) command() (args *string, entrypoint, cmd []string) {
	return o.str("args"), o.strings("entrypoint"), o.strings("cmd")
}

// registry reads the id of a credential. It returns nil if the member is absent, and an
// empty id if it is null.
func (o *object) registry() *string {
	if none := ""; o.isNull("registry") {
		return &none
	}
	s := o.str("registry")
	if s != nil && *s == "" {
		o.faults.Add(problem.Invalid, o.pointer("registry"), "must be an id or null")
	}
	return s
}

// template reads the id of a template.
func (o *object) template() string {
	s := o.str("templateId")
	if s != nil && *s == "" {
		o.faults.Add(problem.Invalid, o.pointer("templateId"), "must not be empty")
	}
	return o.text("templateId")
}

// oneOf reads a string that must be one of these values.
func (o *object) oneOf(name string, values ...string) string {
	s := o.str(name)
	if o.shape != nil {
		openapi.OneOf(o.member(name), values...)
	}
	if s == nil {
		return ""
	}
	for _, v := range values {
		if *s == v {
			return v
		}
	}
	var list strings.Builder
	list.WriteString(values[0])
	for _, v := range values[1:] {
		list.WriteString(", " + v)
	}
	o.faults.Add(problem.Invalid, o.pointer(name), "must be one of %s", list.String())
	return ""
}

// mounts reads the object of docs/interface.md 2.3. Every entry must have all its fields.
// An absent network gives nil, an empty one does not.
func (o *object) mounts() (m pods.Mounts) {
	ms := o.object("mounts")
	if ms == nil {
		return m
	}
	m.Persistent = ms.persistent()
	if ns := ms.objects("network"); ns != nil {
		m.Network = make([]pods.NetworkMount, 0, len(ns))
		for _, n := range ns {
			if n == nil {
				m.Network = append(m.Network, pods.NetworkMount{})
				continue
			}
			n.require("volumeId", "path")
			m.Network = append(m.Network, pods.NetworkMount{VolumeID: n.text("volumeId"), Path: n.text("path")})
			n.unknown()
		}
	}
	ms.unknown()
	return m
}

// persistent reads a host-local mount; nil if it is absent.
func (o *object) persistent() *pods.PersistentMount {
	p := o.object("persistent")
	if p == nil {
		return nil
	}
	p.require("size", "path")
	m := &pods.PersistentMount{Path: p.text("path"), Size: p.number("size")}
	p.unknown()
	return m
}

package httpapi

import (
	"net/http"
	"strings"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

func (x *area) podRoutes() {
	x.handle("/v2/pods", map[string]operation{
		http.MethodGet:  {access: podsRead, do: listPods},
		http.MethodPost: {access: podsWrite, do: createPod},
	})
	x.handle("/v2/pods/{id}", map[string]operation{
		http.MethodGet:    {access: podsRead, do: getPod},
		http.MethodPatch:  {access: podsWrite, do: updatePod},
		http.MethodDelete: {access: podsWrite, do: deletePod},
	})
	x.handle("/v2/pods/{id}/action", map[string]operation{
		http.MethodPost: {access: podsWrite, do: actOnPod},
	})
	x.handle("/v2/pods/{id}/logs", map[string]operation{
		http.MethodGet: {access: podsRead, do: podLogs},
	})
}

func listPods(c *call) error {
	// includeClusterPods changes nothing: there are no clusters.
	if _, err := c.queryFlag("includeClusterPods"); err != nil {
		return err
	}
	list, err := c.Pods.List(c.r.Context(), c.id.User)
	if err != nil {
		return err
	}
	body := struct {
		Pods []podBody `json:"pods"`
	}{make([]podBody, 0, len(list))}
	for _, p := range list {
		body.Pods = append(body.Pods, c.pod(p))
	}
	return writeJSON(c.w, http.StatusOK, body)
}

func createPod(c *call) error {
	body, err := c.jsonBody()
	if err != nil {
		return err
	}
	r, err := decodeCreatePod(body)
	if err != nil {
		return err
	}
	p, err := c.Pods.Create(c.r.Context(), c.id.User, r)
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusCreated, c.pod(p))
}

func getPod(c *call) error {
	p, err := c.Pods.Get(c.r.Context(), c.id.User, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, c.pod(p))
}

func updatePod(c *call) error {
	if err := c.podExists(); err != nil {
		return err
	}
	body, err := c.jsonBody()
	if err != nil {
		return err
	}
	r, err := decodeUpdatePod(body)
	if err != nil {
		return err
	}
	p, err := c.Pods.Update(c.r.Context(), c.id.User, c.r.PathValue("id"), r)
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, c.pod(p))
}

// podExists is asked before a body is read: existence comes first.
func (c *call) podExists() error {
	_, err := c.Pods.Get(c.r.Context(), c.id.User, c.r.PathValue("id"))
	return err
}

func deletePod(c *call) error {
	if err := c.Pods.Terminate(c.r.Context(), c.id.User, c.r.PathValue("id")); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
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
	p, err := c.Pods.Act(c.r.Context(), c.id.User, c.r.PathValue("id"), a)
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, c.pod(p))
}

func decodeAction(body []byte) (pods.Action, error) {
	var faults problem.Violations
	o, err := parse(body, throughout, &faults)
	if err != nil {
		return "", err
	}
	a := pods.Action(o.text("action"))
	o.require("action")
	switch a {
	case pods.Start, pods.Stop, pods.Restart, pods.Terminate:
	default:
		faults.Add(problem.Invalid, "/action", "must be one of start, stop, restart, terminate")
	}
	o.unknown()
	return a, faults.Err([]string{"action"})
}

func decodeCreatePod(body []byte) (r pods.CreateRequest, err error) {
	o, err := parse(body, throughout, &r.Faults)
	if err != nil {
		return r, err
	}
	r.Name = o.text("name")
	r.Image = o.text("image")
	if g := o.object("gpu"); g != nil {
		r.GPU = &pods.GPURequest{
			ID: g.text("id"), Count: g.integer("count"),
			AllowedCUDAVersions: g.strings("allowedCudaVersions"), MinCUDAVersion: g.str("minCudaVersion"),
		}
		g.unknown()
	}
	if p := o.object("cpu"); p != nil {
		p.require("vcpuCount")
		r.CPU = &pods.CPURequest{ID: p.text("id")}
		if n := p.integer("vcpuCount"); n != nil {
			r.CPU.VCPU = *n
		}
		p.unknown()
	}
	r.Args = o.str("args")
	r.Disk = o.integer("disk")
	r.Ports = o.strings("ports")
	r.Env = o.env()
	r.Registry = o.registry()
	r.Mounts = o.mounts()
	r.Cloud = pods.Cloud(o.oneOf("cloud", string(pods.Secure), string(pods.Community)))
	r.DataCenterIDs = o.strings("dataCenterIds")
	if f := o.flag("globalNetworking"); f != nil {
		r.GlobalNetworking = *f
	}
	r.TemplateID = o.template()
	r.StartSSH, r.StartJupyter = o.flag("startSsh"), o.flag("startJupyter")
	o.unknown()
	return r, nil
}

func decodeUpdatePod(body []byte) (r pods.UpdateRequest, err error) {
	o, err := parse(body, throughout, &r.Faults)
	if err != nil {
		return r, err
	}
	r.Name = o.str("name")
	r.Image = o.str("image")
	r.Args = o.str("args")
	r.Disk = o.integer("disk")
	r.Ports = o.strings("ports")
	r.Env = o.env()
	r.Registry = o.registry()
	r.Mounts = o.mounts()
	r.Locked = o.flag("locked")
	r.GlobalNetworking = o.flag("globalNetworking")
	r.TemplateID = o.template()
	o.unknown()
	return r, nil
}

// registry takes the id of a credential: null is how none is written, which is empty here.
// It is nil when it is absent.
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

// template takes the id of a template.
func (o *object) template() string {
	s := o.str("templateId")
	if s != nil && *s == "" {
		o.faults.Add(problem.Invalid, o.pointer("templateId"), "must not be empty")
	}
	return o.text("templateId")
}

// oneOf takes a string that has one of these values.
func (o *object) oneOf(name string, values ...string) string {
	s := o.str(name)
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

// mounts takes section 2.3: every entry has all its fields. An absent network is nil, an
// explicit empty one is not.
func (o *object) mounts() (m pods.Mounts) {
	ms := o.object("mounts")
	if ms == nil {
		return m
	}
	m.Persistent = ms.persistent()
	if ns := ms.objects("network"); ns != nil {
		m.Network = make([]pods.NetworkMount, 0, len(ns))
		for _, n := range ns {
			n.require("volumeId", "path")
			m.Network = append(m.Network, pods.NetworkMount{VolumeID: n.text("volumeId"), Path: n.text("path")})
			n.unknown()
		}
	}
	ms.unknown()
	return m
}

// persistent takes a host-local mount; nil when it is absent.
func (o *object) persistent() *pods.PersistentMount {
	p := o.object("persistent")
	if p == nil {
		return nil
	}
	p.require("size", "path")
	m := &pods.PersistentMount{Path: p.text("path")}
	if n := p.integer("size"); n != nil {
		m.Size = *n
	}
	p.unknown()
	return m
}

package httpapi

import (
	"net/http"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/problem"
)

func (x *area) templateRoutes() {
	x.handle("/v2/templates", map[string]operation{
		http.MethodGet:  {access: podsRead, do: listTemplates},
		http.MethodPost: {access: podsWrite, do: createTemplate},
	})
	x.handle("/v2/templates/{id}", map[string]operation{
		http.MethodGet:    {access: podsRead, do: getTemplate},
		http.MethodPatch:  {access: podsWrite, do: updateTemplate},
		http.MethodDelete: {access: podsWrite, do: deleteTemplate},
	})
	x.handle("/v2/catalog/templates", map[string]operation{
		http.MethodGet: {do: listCatalogTemplates},
	})
}

// A templateBody is a template on the wire (the public schema).
type templateBody struct {
	ID                  string             `json:"id"`
	Name                string             `json:"name"`
	Image               string             `json:"image"`
	Args                string             `json:"args"`
	Disk                int                `json:"disk"`
	Ports               []string           `json:"ports"`
	Env                 map[string]string  `json:"env"`
	Registry            *string            `json:"registry"`
	Mounts              mountsBody         `json:"mounts"`
	Serverless          bool               `json:"serverless"`
	Public              bool               `json:"public"`
	Category            templates.Category `json:"category"`
	StartSSH            bool               `json:"startSsh"`
	StartJupyter        bool               `json:"startJupyter"`
	AllowedCUDAVersions []string           `json:"allowedCudaVersions"`
}

func templateOf(t templates.Template) templateBody {
	b := templateBody{
		ID: t.ID, Name: t.Name, Image: t.Image, Args: t.Args, Disk: t.Disk, Ports: orEmpty(t.Ports), Env: t.Env,
		Registry: orNull(t.Registry), Mounts: mountsOf(pods.Mounts{Persistent: t.Persistent}),
		Serverless: t.Serverless, Public: t.Public, Category: t.Category,
		StartSSH: t.StartSSH, StartJupyter: t.StartJupyter, AllowedCUDAVersions: orEmpty(t.AllowedCUDAVersions),
	}
	if b.Env == nil {
		b.Env = map[string]string{}
	}
	return b
}

func writeTemplates(c *call, list []templates.Template) error {
	return writeJSON(c.w, http.StatusOK, struct {
		Templates []templateBody `json:"templates"`
	}{bodies(list, templateOf, all)})
}

func listTemplates(c *call) error {
	list, err := c.Templates.List(c.r.Context(), c.id.User)
	if err != nil {
		return err
	}
	return writeTemplates(c, list)
}

func listCatalogTemplates(c *call) error {
	source := templates.Source(c.query("source"))
	switch source {
	case "":
		source = templates.FromOfficial
	case templates.FromOfficial, templates.FromVerified, templates.FromCommunity:
	default:
		return problem.New(problem.Invalid, "source must be one of official, verified, community")
	}
	list, err := c.Templates.Catalog(c.r.Context(), c.id.User, source)
	if err != nil {
		return err
	}
	return writeTemplates(c, list)
}

func createTemplate(c *call) error {
	body, err := c.jsonBody()
	if err != nil {
		return err
	}
	r, err := decodeTemplate(body)
	if err != nil {
		return err
	}
	t, err := c.Templates.Create(c.r.Context(), c.id.User, r)
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusCreated, templateOf(t))
}

func getTemplate(c *call) error {
	t, err := c.Templates.Get(c.r.Context(), c.id.User, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, templateOf(t))
}

func updateTemplate(c *call) error {
	ctx, id := c.r.Context(), c.r.PathValue("id")
	if _, err := c.Templates.Own(ctx, c.id.User, id); err != nil {
		return err // existence comes before the body
	}
	body, err := c.jsonBody()
	if err != nil {
		return err
	}
	r, err := decodeTemplate(body)
	if err != nil {
		return err
	}
	t, err := c.Templates.Update(ctx, c.id.User, id, r)
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, templateOf(t))
}

func deleteTemplate(c *call) error {
	if err := c.Templates.Delete(c.r.Context(), c.id.User, c.r.PathValue("id")); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// decodeTemplate reads what create and update take: all that differs is what is required.
func decodeTemplate(body []byte) (r templates.Settings, err error) {
	o, err := parse(body, throughout, &r.Faults)
	if err != nil {
		return r, err
	}
	r.Name, r.Image, r.Args, r.Disk = o.str("name"), o.str("image"), o.str("args"), o.integer("disk")
	r.Ports, r.Env, r.Registry = o.strings("ports"), o.env(), o.registry()
	if ms := o.object("mounts"); ms != nil {
		r.Persistent = ms.persistent()
		ms.unknown()
	}
	r.Serverless, r.Public = o.flag("serverless"), o.flag("public")
	if s := o.str("category"); s != nil {
		r.Category = (*templates.Category)(s)
	}
	r.StartSSH, r.StartJupyter = o.flag("startSsh"), o.flag("startJupyter")
	r.AllowedCUDAVersions = o.strings("allowedCudaVersions")
	o.unknown()
	return r, nil
}

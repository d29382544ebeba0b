package httpapi

import (
	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/templates"
)

func templateOperations() []operation {
	return group(APIControl, AreaTemplates,
		op("listTemplates", "GET /v2/templates", ScopePodsRead, listTemplates, paginated, byOwners, heavy),
		op("createTemplate", "POST /v2/templates", ScopePodsWrite, createTemplate, keyed),
		op("getTemplate", "GET /v2/templates/{id}", ScopePodsRead, getTemplate),
		op("updateTemplate", "PATCH /v2/templates/{id}", ScopePodsWrite, updateTemplate),
		op("deleteTemplate", "DELETE /v2/templates/{id}", ScopePodsWrite, deleteTemplate),
		op("listPublicTemplates", "GET /v2/catalog/templates", ScopeAny, listCatalogTemplates, marked),
	)
}

func (b *describer) describeTemplates() map[string]description {
	template := openapi.For[templateBody](&b.Builder)
	return map[string]description{
		"listTemplates":  {summary: "List the caller's templates", answers: ok(withPagination(b.list("templates", template, true)))},
		"createTemplate": {summary: "Create a template", body: b.Component("CreateTemplateRequest", templateSettingsBody("name", "image")), answers: created(template)},
		"getTemplate":    {summary: "Get a template, one of the caller or a public one", answers: ok(template)},
		"updateTemplate": {summary: "Change a template", body: b.Component("UpdateTemplateRequest", templateSettingsBody()), answers: ok(template)},
		"deleteTemplate": {summary: "Delete a template", text: "400 while a pod of its owner was made from it.", answers: gone()},
		"listPublicTemplates": {summary: "List public templates", answers: ok(withPagination(b.list("templates", template, false))), params: []*openapi.Parameter{
			inQuery("source", values(templates.FromOfficial, templates.FromVerified, templates.FromCommunity).Defaults(templates.FromOfficial), "Who published them."),
		}},
	}
}

func templateSettingsBody(required ...string) *openapi.Schema {
	s := containerRules(recorded(func(o *object) { o.templateSettings(&templates.Settings{}) }))
	s.Required = required
	s.At("mounts/persistent/size").Between(pods.MinPersistentSize, pods.MaxStorage)
	s.At("mounts/persistent/path").NotEmpty()
	openapi.OneOf(s.At("category"), templates.CPU, templates.NVIDIA, templates.AMD)
	s.At("allowedCudaVersions/*").Pattern = cudaPattern
	extrasRules(s)
	return s
}

// A templateBody is a template on the wire (the public schema).
type templateBody struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Image string `json:"image"`
	commandBody
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
		ID: t.ID, Name: t.Name, Image: t.Image, commandBody: commandOf(t.Args), Disk: t.Disk, Ports: orEmpty(t.Ports), Env: t.Env,
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
	return writeList(c, "templates", list, func(t templates.Template) string { return t.Owner }, templateOf)
}

func listTemplates(c *call) error {
	list, err := ofOwner(c, c.Templates.List, c.Templates.All, func(t templates.Template) place { return place{t.Created, t.ID} })
	if err != nil {
		return err
	}
	return writeTemplates(c, list)
}

func listCatalogTemplates(c *call) error {
	source, err := queryOneOf(c, "source", templates.FromOfficial, templates.FromOfficial, templates.FromVerified, templates.FromCommunity)
	if err != nil {
		return err
	}
	list, err := c.Templates.Catalog(c.r.Context(), c.owner, source)
	if err != nil {
		return err
	}
	return writeTemplates(c, list)
}

func createTemplate(c *call) error {
	var r templates.Settings
	if err := decode(c, &r, &r.Violations, (*object).templateSettings); err != nil {
		return err
	}
	r.Idempotency = c.keyed
	t, err := c.Templates.Create(c.r.Context(), c.owner, r)
	t, err = onceCreated(c, t, err, c.Templates.Get)
	return writeMade(c, t, t.ID, err, templateOf)
}

func getTemplate(c *call) error {
	t, err := c.Templates.Get(c.r.Context(), c.owner, c.r.PathValue("id"))
	return writeRecord(c, t, err, templateOf)
}

func updateTemplate(c *call) error {
	ctx, id := c.r.Context(), c.r.PathValue("id")
	if _, err := c.Templates.GetOwned(ctx, c.owner, id); err != nil {
		return err // existence comes before the body
	}
	var r templates.Settings
	if err := decode(c, &r, &r.Violations, (*object).templateSettings); err != nil {
		return err
	}
	t, err := c.Templates.Update(ctx, c.owner, id, r)
	return writeRecord(c, t, err, templateOf)
}

func deleteTemplate(c *call) error {
	return c.noContent(c.Templates.Delete(c.r.Context(), c.owner, c.r.PathValue("id")))
}

func (o *object) templateSettings(r *templates.Settings) {
	r.Name, r.Image, r.Disk = o.str("name"), o.str("image"), o.integer("disk")
	r.Args, r.Entrypoint, r.Cmd = o.command()
	r.Ports, r.Env, r.Registry = o.strings("ports"), o.env(), o.registry()
	if ms := o.object("mounts"); ms != nil {
		r.Persistent = ms.persistent()
		ms.unknown()
	}
	r.Serverless, r.Public = o.boolean("serverless"), o.boolean("public")
	if s := o.str("category"); s != nil {
		r.Category = (*templates.Category)(s)
	}
	r.StartSSH, r.StartJupyter = o.boolean("startSsh"), o.boolean("startJupyter")
	r.AllowedCUDAVersions = o.choices("allowedCudaVersions")
	r.Extras = o.extras()
	o.unknown()
}

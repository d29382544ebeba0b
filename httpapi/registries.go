package httpapi

import (
	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/registries"
)

func registryOperations() []operation {
	return group(APIControl, AreaRegistries,
		absent("listDelegations", "GET /v2/registries/delegations", ScopeRegistriesRead, noDelegations),
		absent("createDelegation", "POST /v2/registries/delegations", ScopeRegistriesWrite, noDelegations),
		absent("revokeDelegation", "DELETE /v2/registries/delegations/{id}", ScopeRegistriesWrite, noDelegations),
		op("listRegistries", "GET /v2/registries", ScopeRegistriesRead, listRegistries, paged, byOwners),
		op("createRegistry", "POST /v2/registries", ScopeRegistriesWrite, createRegistry, keyed),
		op("getRegistry", "GET /v2/registries/{id}", ScopeRegistriesRead, getRegistry),
		op("deleteRegistry", "DELETE /v2/registries/{id}", ScopeRegistriesWrite, deleteRegistry),
	)
}

func (b *describer) describeRegistries() map[string]description {
	registry := openapi.For[registryBody](&b.Builder)
	return map[string]description{
		"listRegistries": {summary: "List the caller's credentials for registries", answers: ok(b.list("registries", registry, true))},
		"createRegistry": {summary: "Store a credential for a registry", text: "No answer has it.", body: b.Component("CreateRegistryRequest", createRegistryBody()), answers: created(registry)},
		"getRegistry":    {summary: "Get a credential, without its secrets", answers: ok(registry)},
		"deleteRegistry": {summary: "Delete a credential", text: "400 while a pod or an endpoint uses it.", answers: gone()},
	}
}

func createRegistryBody() *openapi.Schema {
	s := recorded(func(o *object) { o.createRegistry(&registries.CreateRequest{}) })
	for _, name := range s.Required {
		s.At(name).NotEmpty()
	}
	return s
}

// A registryBody is a registry on the wire (docs/interface.md 2.7): never its credentials.
type registryBody struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

func registryOf(r registries.Registry) registryBody { return registryBody{r.ID, r.Name} }

func listRegistries(c *call) error {
	list, err := ofOwner(c, c.Registries.List, c.Registries.All, func(r registries.Registry) place { return place{r.Created, r.ID} })
	if err != nil {
		return err
	}
	return writeList(c, "registries", list, func(r registries.Registry) string { return r.Owner }, registryOf)
}

func createRegistry(c *call) error {
	var r registries.CreateRequest
	if err := decode(c, &r, &r.Violations, (*object).createRegistry); err != nil {
		return err
	}
	r.Idempotency = c.keyed
	reg, err := c.Registries.Create(c.r.Context(), c.owner, r)
	reg, err = onceCreated(c, reg, err, c.Registries.Get)
	return writeMade(c, reg, reg.ID, err, registryOf)
}

func (o *object) createRegistry(r *registries.CreateRequest) {
	o.require("name", "username", "password")
	r.Name = o.text("name")
	r.Username = registries.Secret(o.text("username"))
	r.Password = registries.Secret(o.text("password"))
	o.unknown()
}

func getRegistry(c *call) error {
	reg, err := c.Registries.Get(c.r.Context(), c.owner, c.r.PathValue("id"))
	return writeRecord(c, reg, err, registryOf)
}

func deleteRegistry(c *call) error {
	return c.noContent(c.Registries.Delete(c.r.Context(), c.owner, c.r.PathValue("id")))
}

package httpapi

import (
	"net/http"

	"github.com/podyard/podyard/registries"
)

func (x *area) registryRoutes() {
	x.handle("/v2/registries", map[string]operation{
		http.MethodGet:  {access: registriesRead, do: listRegistries},
		http.MethodPost: {access: registriesWrite, do: createRegistry},
	})
	x.handle("/v2/registries/{id}", map[string]operation{
		http.MethodGet:    {access: registriesRead, do: getRegistry},
		http.MethodDelete: {access: registriesWrite, do: deleteRegistry},
	})
}

// A registryBody is a registry on the wire (section 2.7): never its credentials.
type registryBody struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

func registryOf(r registries.Registry) registryBody { return registryBody{r.ID, r.Name} }

func listRegistries(c *call) error {
	list, err := c.Registries.List(c.r.Context(), c.id.User)
	if err != nil {
		return err
	}
	body := struct {
		Registries []registryBody `json:"registries"`
	}{make([]registryBody, 0, len(list))}
	for i := range list {
		body.Registries = append(body.Registries, registryOf(list[i]))
	}
	return writeJSON(c.w, http.StatusOK, body)
}

func createRegistry(c *call) error {
	body, err := c.jsonBody()
	if err != nil {
		return err
	}
	var r registries.CreateRequest
	o, err := parse(body, throughout, &r.Faults)
	if err != nil {
		return err
	}
	r.Name = o.text("name")
	r.Username = registries.Secret(o.text("username"))
	r.Password = registries.Secret(o.text("password"))
	o.unknown()
	reg, err := c.Registries.Create(c.r.Context(), c.id.User, r)
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusCreated, registryOf(reg))
}

func getRegistry(c *call) error {
	reg, err := c.Registries.Get(c.r.Context(), c.id.User, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, registryOf(reg))
}

func deleteRegistry(c *call) error {
	if err := c.Registries.Delete(c.r.Context(), c.id.User, c.r.PathValue("id")); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

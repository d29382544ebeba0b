package httpapi

import (
	"slices"
	"strings"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/serverless"
)

// maxSecretBody has room for the largest value, whose escapes may take more than itself.
const maxSecretBody = 17 << 20

func secretOperations() []operation {
	return group(APIControl, AreaSecrets,
		op("listSecrets", "GET /v2/account/secrets", ScopeSecretsRead, listSecrets, byOwners),
		op("createSecret", "POST /v2/account/secrets", ScopeSecretsWrite, createSecret, bodyUpTo(maxSecretBody)),
		op("getSecret", "GET /v2/account/secrets/{id}", ScopeSecretsRead, getSecret),
		op("updateSecret", "PATCH /v2/account/secrets/{id}", ScopeSecretsWrite, updateSecret, bodyUpTo(maxSecretBody)),
		op("deleteSecret", "DELETE /v2/account/secrets/{id}", ScopeSecretsWrite, deleteSecret),
	)
}

func (b *describer) describeSecrets() map[string]description {
	secret := openapi.For[secretBody](&b.Builder)
	return map[string]description{
		"listSecrets": {
			summary: "List the caller's secrets, without their values", answers: ok(b.list("secrets", secret, true)),
			params: []*openapi.Parameter{inQuery("name", openapi.Of("string").NotEmpty(), "Only the one with this name, whatever its case.")},
		},
		"createSecret": {
			summary: "Store a value for variables of pods and workers", text: "No answer has it. {{ RUNPOD_SECRET_name }} in a variable is replaced when a container is made.",
			body: b.Component("CreateSecretRequest", createSecretBody()), answers: created(secret),
		},
		"getSecret": {summary: "Get a secret, without its value", answers: ok(secret)},
		"updateSecret": {
			summary: "Change the value or the description of a secret", text: "Containers that run keep what they have.",
			body: b.Component("UpdateSecretRequest", updateSecretBody()), answers: ok(secret),
		},
		"deleteSecret": {summary: "Delete a secret", text: "It is empty in containers that are made from now on.", answers: gone()},
	}
}

func createSecretBody() *openapi.Schema {
	s := recorded(func(o *object) { o.createSecret(&secrets.CreateRequest{}) })
	s.At("name").NotEmpty()
	s.At("name").Pattern = secrets.NamePattern
	s.At("value").NotEmpty()
	return s
}

func updateSecretBody() *openapi.Schema {
	s := recorded(func(o *object) { o.updateSecret(&secrets.UpdateRequest{}) })
	s.At("value").NotEmpty()
	return s.NotEmpty()
}

// A secretBody is a secret on the wire (docs/interface.md 2.24): never its value.
type secretBody struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Description *string   `json:"description"`
	CreatedAt   wireTime  `json:"createdAt"`
	ValueSet    *wireTime `json:"valueLastUpdatedAt"`
}

func secretOf(s secrets.Secret) secretBody {
	set := wireTime(s.ValueSet)
	return secretBody{s.ID, s.Name, orNull(s.Description), wireTime(s.Created), &set}
}

func listSecrets(c *call) error {
	name, err := c.queryText("name")
	if err != nil {
		return err
	}
	var list []secrets.Secret
	if c.owner == serverless.AllOwners {
		list, err = c.Secrets.All(c.r.Context())
	} else {
		list, err = c.Secrets.List(c.r.Context(), c.owner)
	}
	if err != nil {
		return err
	}
	if name != "" {
		list = slices.DeleteFunc(list, func(s secrets.Secret) bool { return !strings.EqualFold(s.Name, name) })
	}
	return writeList(c, "secrets", list, func(s secrets.Secret) string { return s.Owner }, secretOf)
}

func createSecret(c *call) error {
	var r secrets.CreateRequest
	if err := decode(c, &r, &r.Violations, (*object).createSecret); err != nil {
		return err
	}
	s, err := c.Secrets.Create(c.r.Context(), c.owner, r)
	return writeMade(c, s, s.ID, err, secretOf)
}

func (o *object) createSecret(r *secrets.CreateRequest) {
	o.require("name", "value")
	r.Name, r.Value, r.Description = o.text("name"), secrets.Value(o.text("value")), o.str("description")
	o.unknown()
}

func getSecret(c *call) error {
	s, err := c.Secrets.Get(c.r.Context(), c.owner, c.r.PathValue("id"))
	return writeRecord(c, s, err, secretOf)
}

func updateSecret(c *call) error {
	ctx, id := c.r.Context(), c.r.PathValue("id")
	if _, err := c.Secrets.Get(ctx, c.owner, id); err != nil {
		return err // existence comes before the body
	}
	var r secrets.UpdateRequest
	if err := decode(c, &r, &r.Violations, (*object).updateSecret); err != nil {
		return err
	}
	s, err := c.Secrets.Update(ctx, c.owner, id, r)
	return writeRecord(c, s, err, secretOf)
}

func (o *object) updateSecret(r *secrets.UpdateRequest) {
	if v := o.str("value"); v != nil {
		value := secrets.Value(*v)
		r.Value = &value
	}
	r.Description = o.str("description")
	o.unknown()
}

func deleteSecret(c *call) error {
	return c.noContent(c.Secrets.Delete(c.r.Context(), c.owner, c.r.PathValue("id")))
}

package httpapi

import (
	"net/http"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods/sshkeys"
)

func sshKeyOperations() []operation {
	return group(APIControl, AreaSSHKeys,
		op("getSshKeys", "GET /v2/account/ssh-keys", ScopePodsRead, listSSHKeys, byOwner),
		op("updateSshKeys", "PUT /v2/account/ssh-keys", ScopePodsWrite, replaceSSHKeys),
	)
}

func (b *describer) describeSSHKeys() map[string]description {
	keys := fields(map[string]*openapi.Schema{"keys": openapi.List(openapi.Of("string"))}, "keys")
	return map[string]description{
		"getSshKeys":    {summary: "List the caller's public SSH keys", answers: ok(keys)},
		"updateSshKeys": {summary: "Replace the caller's public SSH keys", body: b.Component("UpdateSshKeysRequest", sshKeysBody()), answers: ok(keys)},
	}
}

func sshKeysBody() *openapi.Schema {
	s := recorded(func(o *object) { o.replaceSSHKeys(&sshkeys.ReplaceRequest{}) })
	s.Required = []string{"keys"}
	return s
}

func writeSSHKeys(c *call, keys []string) error {
	return writeJSON(c.w, http.StatusOK, struct {
		Keys []string `json:"keys"`
	}{orEmpty(keys)})
}

func listSSHKeys(c *call) error {
	keys, err := c.SSHKeys.PublicKeys(c.r.Context(), c.owner)
	if err != nil {
		return err
	}
	return writeSSHKeys(c, keys)
}

func replaceSSHKeys(c *call) error {
	var r sshkeys.ReplaceRequest
	if err := decode(c, &r, &r.Violations, (*object).replaceSSHKeys); err != nil {
		return err
	}
	r.By = c.id.Key
	r.Good = func(by string) bool {
		return by == r.By || MayEnter(c.r.Context(), c.auth, c.owner, by)
	}
	keys, err := c.SSHKeys.Replace(c.r.Context(), c.owner, r)
	if err != nil {
		return err
	}
	return writeSSHKeys(c, keys)
}

func (o *object) replaceSSHKeys(r *sshkeys.ReplaceRequest) {
	r.Keys = o.strings("keys")
	o.unknown()
}

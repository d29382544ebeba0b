package httpapi

import (
	"net/http"

	"github.com/podyard/podyard/pods/sshkeys"
)

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
	o, err := c.jsonObject(&r.Violations)
	if err != nil {
		return err
	}
	o.replaceSSHKeys(&r)
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

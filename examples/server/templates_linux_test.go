package main

import (
	"net/http"
	"os/exec"
	"testing"

	"github.com/podyard/podyard/internal/suite"
)

func TestAPodIsMadeFromATemplateWithTheKeysOfItsUser(t *testing.T) {
	suite.SkipUnlessLong(t)
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("needs a shell: ", err)
	}
	config, data := file(t, `{"images":{"local/tells":{"command":["sh","-c","echo $NAME has key $PUBLIC_KEY"]}}}`), t.TempDir()
	in := start(t, "-data", data, "-config", config)
	get[any](in, "PUT", "/v2/account/ssh-keys", `{"keys":["ssh-ed25519 AAAA"]}`, http.StatusOK)
	id := get[struct{ ID string }](in, "POST", "/v2/templates", `{"name":"t","image":"local/tells","env":{"NAME":"template"}}`, http.StatusCreated).ID
	in.stop()
	in = start(t, "-data", data, "-config", config)
	p := get[pod](in, "POST", "/v2/pods", `{"name":"p","templateId":"`+id+`","cpu":{"id":"host","vcpuCount":2},"env":{"NAME":"body"}}`, http.StatusCreated)
	in.follow(p.ID).await("container: body has key ssh-ed25519 AAAA")
	get[any](in, "DELETE", "/v2/templates/"+id, "", http.StatusBadRequest)
	p = get[pod](in, "POST", "/v2/pods", `{"name":"web","templateId":"podyard-web","cpu":{"id":"host","vcpuCount":2}}`, http.StatusCreated)
	eventually(t, "the web server of the official template runs", func() bool { return in.pod(p.ID).Status == "RUNNING" })
}

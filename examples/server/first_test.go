package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/podyard/podyard/internal/suite"
)

func TestTheAddressAloneSaysWhereEverythingIs(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := start(t, "-runtime", "process")
	status, b := in.do("GET", "/", "")
	if status != http.StatusOK || !strings.Contains(string(b), "/console/") || !strings.Contains(string(b), "/v2/openapi.json") {
		t.Errorf("GET / = %d %s, want where the console and the document are", status, b)
	}
	if status, _ := in.do("POST", "/", "{}"); status != http.StatusNotFound {
		t.Errorf("POST / = %d, want 404", status)
	}
	in.stop()
}

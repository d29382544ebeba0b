package httpapi_test

import "strings"

// secretRefusals are bad requests to secrets (docs/decisions.md 49).
func secretRefusals() []refusal {
	nobody := []string{"Authorization: Bearer nobody"}
	const (
		list     = "GET /v2/account/secrets"
		post     = "POST /v2/account/secrets"
		patch    = "PATCH /v2/account/secrets/{secret}"
		noName   = "/name: must have 1 to 191 characters"
		noForm   = "/name: must begin with a letter or _, and go on with letters, digits, _, ., - and /"
		noValue  = "/value: must have 1 to 16777215 bytes of UTF-8"
		reserved = "/name: must not begin with RUNPOD, in any case"
		notFound = "secret not found"
	)
	return []refusal{
		{list, "", 401, "missing bearer token", []string{"Authorization:"}},
		{list, "", 401, "invalid or expired token", nobody},
		{list + "?name=", "", 422, "name must not be empty", nil},
		{list + "?owner=bob", "", 403, "access denied", nil},
		{list + "?owner=", "", 403, "access denied", nil},
		{"PUT /v2/account/secrets", `{"name":"n","value":"v"}`, 405, "The requested method is not allowed for this path.", nil},
		{post, "", 401, "missing bearer token", []string{"Authorization:"}},
		{post, "", 400, "the body is empty: it must be a JSON object", nil},
		{post, "{", 400, "the body is not JSON: unexpected EOF at byte 1", nil},
		{post, "[]", 422, "the body must be a JSON object", nil},
		{post, `"name"`, 422, "the body must be a JSON object", nil},
		{post, "{}", 422, "/name: is required | /value: is required", nil},
		{post, `{"name":"n"}`, 422, "/value: is required", nil},
		{post, `{"value":"v"}`, 422, "/name: is required", nil},
		{post, `{"name":"","value":""}`, 422, noName + " | " + noValue, nil},
		{post, `{"name":1,"value":{},"description":null,"id":"x"}`, 422, "/name: must be a string | /value: must be a string | /description: must be a string | /id: unknown property", nil},
		{post, `{"name":"n","name":"m","value":"v"}`, 400, "the body is not JSON: duplicate object member name at /name, byte 12", nil},
		{post, `{"name":"n","value":"v"}}`, 400, "the body is not JSON: there is something after its end, at byte 24", nil},
		{post, `{"name":"1n","value":"v"}`, 422, noForm, nil},
		{post, `{"name":"n m","value":"v"}`, 422, noForm, nil},
		{post, `{"name":"n\n","value":"v"}`, 422, noForm, nil},
		{post, `{"name":"n}}","value":"v"}`, 422, noForm, nil},
		{post, `{"name":"schlüssel","value":"v"}`, 422, noForm, nil},
		{post, `{"name":"` + strings.Repeat("n", 192) + `","value":"v"}`, 422, noName, nil},
		{post, `{"name":"RUNPOD","value":"v"}`, 400, reserved, nil},
		{post, `{"name":"runPod_key","value":"v"}`, 400, reserved, nil},
		{post, `{"name":"n","value":"a\u0000b"}`, 422, "/value: must not have the character NUL, which no variable can have", nil},
		{post, `{"name":"n","value":"v","description":"` + strings.Repeat("d", 1<<16) + `"}`, 422, "/description: must have at most 65535 bytes of UTF-8", nil},
		{post, `{"name":"n","value":"v"}`, 415, "the body must be application/json", []string{"Content-Type: text/plain"}},
		{post, `{"name":"n","value":"` + strings.Repeat("v", 17<<20) + `"}`, 413, "the body is larger than 17825792 bytes (17 MB)", nil},
		{post, `{"name":"n","value":"` + strings.Repeat("v", 16<<20) + `"}`, 422, noValue, nil},
		{post, `{"name":"hush","value":"v"}`, 409, "a secret with this name exists", nil},
		{post, `{"name":"HUSH","value":"v"}`, 409, "a secret with this name exists", nil},
		{post + "?owner=bob", `{"name":"n","value":"v"}`, 403, "access denied", nil},
		{"GET /v2/account/secrets/nothere", "", 404, notFound, nil},
		{"GET /v2/account/secrets/hush", "", 404, notFound, nil},
		{"GET /v2/account/secrets/{bobsecret}", "", 404, notFound, nil},
		{"GET /v2/account/secrets/{secret}", "", 401, "invalid or expired token", nobody},
		{"PATCH /v2/account/secrets/nothere", "{", 404, notFound, nil},
		{"PATCH /v2/account/secrets/{bobsecret}", `{"value":"mine"}`, 404, notFound, nil},
		{patch, "", 400, "the body is empty: it must be a JSON object", nil},
		{patch, "{}", 422, "the body must name at least one of value, description", nil},
		{patch, `{"value":""}`, 422, noValue, nil},
		{patch, `{"value":null,"description":1}`, 422, "/value: must be a string | /description: must be a string", nil},
		{patch, `{"value":"v","name":"other"}`, 422, "/name: unknown property", nil},
		{patch, `{"value":"a\u0000b"}`, 422, "/value: must not have the character NUL, which no variable can have", nil},
		{patch, `{"value":"v"}`, 415, "the body must be application/json", []string{"Content-Type: text/plain"}},
		{"DELETE /v2/account/secrets/nothere", "", 404, notFound, nil},
		{"DELETE /v2/account/secrets/{bobsecret}", "", 404, notFound, nil},
		{"DELETE /v2/account/secrets/{secret}", "", 401, "invalid or expired token", nobody},
	}
}

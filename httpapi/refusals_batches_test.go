package httpapi_test

import "strings"

// batchRefusals are bad requests to batches (docs/decisions.md 41).
func batchRefusals() []refusal {
	nobody := []string{"Authorization: Bearer nobody"}
	const (
		list = "GET /v2/idle/batch"
		post = "POST /v2/idle/batch"
		one  = "/v2/idle/batch/{batch}"
		bobs = "/v2/idle/batch/{bobbatch}"
		none = "/v2/idle/batch/nothere"
		run  = `{"input":{}}`
	)
	return []refusal{
		{list, "", 401, "missing bearer token", []string{"Authorization:"}},
		{list + "?owner=bob", "", 403, "access denied", nil},
		{"GET /v2/nowhere/batch", "", 404, "endpoint not found", nil},
		{post, "", 400, "the body is empty: it must be a JSON object", nil},
		{post, "[", 400, "the body is not JSON: unexpected EOF at byte 1", nil},
		{post, "[] x", 400, "the body is not JSON: there is something after its end, at byte 2", nil},
		{post, `"x"`, 422, "the body must be a JSON object", nil},
		{post, "{}", 422, "/requests: is required", nil},
		{post, `{"requests":{},"webhook":1,"name":2,"finalize":3,"id":4}`, 422, "/name: must be a string | /webhook: must be a string | /finalize: must be true or false | /requests: must be an array | /id: unknown property", nil},
		{post, `{"requests":[],"finalize":true}`, 400, "/requests: must not be empty in a batch that is finalized at once", nil},
		{post, `{"requests":[],"webhook":"x"}`, 422, "/webhook: must be an absolute http or https URL", nil},
		{post, `{"requests":[],"name":"` + strings.Repeat("é", 201) + `"}`, 422, "/name: must have at most 200 characters", nil},
		{post, `[1,{},` + run + `,{"input":[]}]`, 422, "/0: must be an object | /3/input: must be a JSON object | /1/input: is required", nil},
		{post, `{"requests":[` + run + `,{"input":{},"policy":{"ttl":1}},{"input":{},"queue":{"priority":10,"x":1}}]}`, 422, "/requests/2/queue/x: unknown property | /requests/1/policy/ttl: must be from 10000 to 604800000 milliseconds | /requests/2/queue/priority: must be from 0 to 9", nil},
		{post, `[{"input":{},"queue":{"startAfter":1000}}]`, 422, "/0/queue/startAfter: must be absent: the batch says when its requests start", nil},
		{post, `{"requests":[` + run + `,{"input":{},"input":{}}]}`, 400, "the body is not JSON: duplicate object member name at /requests/1/input, byte 38", nil},
		{post, `[{"input":{},"policy":{"ttl":1,"ttl":2}}]`, 400, "the body is not JSON: duplicate object member name at /0/policy/ttl, byte 31", nil},
		{post, "[" + strings.Repeat(run+",", 5000) + run + "]", 422, "there must be at most 5000 requests", nil},
		{post, `[{"input":{"a":"` + strings.Repeat("x", 10<<20) + `"}}]`, 413, "the body is larger than 10485760 bytes (10 MB)", nil},
		{"POST /v2/nowhere/batch", "{", 404, "endpoint not found", nil},
		{"GET " + none, "", 404, "batch not found", nil},
		{"GET " + bobs, "", 404, "batch not found", nil},
		{"GET /v2/echo/batch/{batch}", "", 404, "batch not found", nil},
		{"GET " + one, "", 401, "invalid or expired token", nobody},
		{"PUT " + none, "{", 404, "batch not found", nil},
		{"PUT " + bobs, `{"name":"x"}`, 404, "batch not found", nil},
		{"PUT " + one, `{"name":1,"webhook":"x"}`, 422, "/name: must be a string | /webhook: must be an absolute http or https URL", nil},
		{"PUT " + one, "[]", 422, "the body must be a JSON object", nil},
		{"POST " + none + "/requests", "{", 404, "batch not found", nil},
		{"POST " + bobs + "/requests", `{"requests":[` + run + `]}`, 404, "batch not found", nil},
		{"POST " + one + "/requests", "{}", 422, "/requests: is required", nil},
		{"POST " + one + "/requests", `{"requests":[` + run + `,{}]}`, 422, "/requests/1/input: is required", nil},
		{"POST " + one + "/requests", `{"requests":[` + strings.Repeat(run+",", 4999) + run + `]}`, 429, "the batch has 1 of 5000 requests: 5000 more do not fit, make another batch", nil},
		{"POST /v2/idle/batch/{begun}/requests", `{"requests":[` + run + `]}`, 409, "the batch is no draft any more: its requests cannot be changed", nil},
		{"GET " + none + "/requests", "", 404, "batch not found", nil},
		{"GET " + bobs + "/requests", "", 404, "batch not found", nil},
		{"GET " + one + "/requests?limit=0", "", 422, "limit must be an integer from 1 to 100", nil},
		{"GET " + one + "/requests?offset=-1", "", 422, "offset must be an integer from 0 to 2147483647", nil},
		{"DELETE " + none + "/requests/x", "", 404, "batch not found", nil},
		{"DELETE " + bobs + "/requests/{bobbatch}-0", "", 404, "batch not found", nil},
		{"DELETE " + one + "/requests/{bobbatch}-0", "", 404, "request not found in the batch", nil},
		{"DELETE " + one + "/requests/{batch}-00", "", 404, "request not found in the batch", nil},
		{"DELETE /v2/idle/batch/{begun}/requests/{begun}-0", "", 409, "the batch is no draft any more: its requests cannot be changed", nil},
		{"POST " + none + "/finalize", "", 404, "batch not found", nil},
		{"POST " + bobs + "/finalize", "", 404, "batch not found", nil},
		{"POST /v2/idle/batch/{void}/finalize", "", 409, "the batch has no requests: add some before it is finalized", nil},
		{"POST " + none + "/cancel", "", 404, "batch not found", nil},
		{"POST " + bobs + "/cancel", "", 404, "batch not found", nil},
		{"POST /v2/echo/batch/{batch}/cancel", "", 404, "batch not found", nil},
	}
}

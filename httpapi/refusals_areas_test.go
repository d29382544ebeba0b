package httpapi_test

import "strings"

// moreRefusals are bad requests to areas other than pods, registries and jobs.
func moreRefusals() []refusal {
	asAdmin := []string{"Authorization: Bearer " + adminFree}
	return []refusal{
		{"GET /v2/network-volumes", "", 401, "missing bearer token", []string{"Authorization:"}},
		{"GET /v2/network-volumes", "", 401, "invalid or expired token", []string{"Authorization: Bearer nobody"}},
		{"GET /v2/network-volumes", "", 401, "malformed authorization header", []string{"Authorization: Basic YTpi"}},
		{"POST /v2/network-volumes", "", 400, "the body is empty: it must be a JSON object", nil},
		{"POST /v2/network-volumes", "{", 400, "the body is not JSON: unexpected EOF at byte 1", nil},
		{"POST /v2/network-volumes", "[]", 422, "the body must be a JSON object", nil},
		{"POST /v2/network-volumes", "{}", 422, "/name: is required | /size: is required | /dataCenter: is required", nil},
		{"POST /v2/network-volumes", `{"type":1,"dataCenter":2,"size":"3","name":4,"owner":"me"}`, 422, "/name: must be a string | /size: must be an integer | /dataCenter: must be a string | /type: must be a string | /owner: unknown property", nil},
		{"POST /v2/network-volumes", `{"name":"n","size":9,"dataCenter":"US-KS-2"}`, 422, "/size: must be 10 to 4096 GB", nil},
		{"POST /v2/network-volumes", `{"name":"n","size":4097,"dataCenter":"US-KS-2"}`, 422, "/size: must be 10 to 4096 GB", nil},
		{"POST /v2/network-volumes", `{"name":"n","size":10.5,"dataCenter":"US-KS-2"}`, 422, "/size: must be an integer", nil},
		{"POST /v2/network-volumes", `{"name":"n","size":10,"dataCenter":"MARS-1"}`, 422, `/dataCenter: unknown data center "MARS-1"`, nil},
		{"POST /v2/network-volumes", `{"name":"n","size":10,"dataCenter":"US-KS-2","type":"TAPE"}`, 422, "/type: must be one of STANDARD, HIGH_PERFORMANCE", nil},
		{"POST /v2/network-volumes", `{"name":"n","size":10,"dataCenter":"EU-NL-1"}`, 400, "/dataCenter: data center EU-NL-1 has no network volumes", nil},
		{"POST /v2/network-volumes", `{"name":"n","size":10,"dataCenter":"US-TX-3","type":"HIGH_PERFORMANCE"}`, 400, "/type: data center US-TX-3 has no volumes of type HIGH_PERFORMANCE", nil},
		{"POST /v2/network-volumes", `{"name":"n","size":10,"dataCenter":"US-KS-2"}`, 415, "the body must be application/json", []string{"Content-Type: text/plain"}},
		{"GET /v2/network-volumes/nothere", "", 404, "network volume not found", nil},
		{"GET /v2/network-volumes/{bobvol}", "", 404, "network volume not found", nil},
		{"GET /v2/network-volumes/{vol}", "", 401, "invalid or expired token", []string{"Authorization: Bearer nobody"}},
		{"PATCH /v2/network-volumes/nothere", "{", 404, "network volume not found", nil},
		{"PATCH /v2/network-volumes/{bobvol}", `{"name":"mine"}`, 404, "network volume not found", nil},
		{"PATCH /v2/network-volumes/{vol}", "{}", 422, "the body must name at least one of name, size", nil},
		{"PATCH /v2/network-volumes/{vol}", `{"name":"","size":9,"dataCenter":"US-KS-2","type":"STANDARD"}`, 422, "/name: must not be empty | /size: must be 10 to 4096 GB | /dataCenter: unknown property | /type: unknown property", nil},
		{"PATCH /v2/network-volumes/{vol}", `{"name":null}`, 422, "/name: must be a string", nil},
		{"PATCH /v2/network-volumes/{vol}", `{"name":"new","size":19}`, 400, "/size: must not be below the present 20 GB", nil},
		{"PATCH /v2/network-volumes/{vol}", `{"name":"new"}`, 415, "the body must be application/json", []string{"Content-Type: text/plain"}},
		{"DELETE /v2/network-volumes/nothere", "", 404, "network volume not found", nil},
		{"DELETE /v2/network-volumes/{bobvol}", "", 404, "network volume not found", nil},
		{"DELETE /v2/network-volumes/vol1", "", 400, "network volume is in use by a pod or an endpoint; a terminated pod uses it until its processes have ended", nil},
		{"GET /v2/global-volumes", "", 401, "missing bearer token", []string{"Authorization:"}},
		{"GET /v2/global-volumes", "", 401, "invalid or expired token", []string{"Authorization: Bearer nobody"}},
		{"GET /v2/global-volumes?limit=0", "", 422, "limit must be an integer from 1 to 1000", nil},
		{"POST /v2/global-volumes", `{"name":"g"}`, 400, "Global volumes are not offered by this service: create a network volume.", nil},
		{"POST /v2/global-volumes", `{"name":"g"}`, 401, "missing bearer token", []string{"Authorization:"}},
		{"POST /v2/global-volumes", `{"name":"g"}`, 401, "invalid or expired token", []string{"Authorization: Bearer nobody"}},
		{"GET /v2/billing/endpoints", "", 401, "missing bearer token", []string{"Authorization:"}},
		{"GET /v2/billing/endpoints", "", 401, "invalid or expired token", []string{"Authorization: Bearer nobody"}},
		{"GET /v2/billing/endpoints?bucketSize=minute", "", 422, "bucketSize must be one of hour, day, week, month, year", nil},
		{"GET /v2/templates", "", 401, "missing bearer token", []string{"Authorization:"}},
		{"GET /v2/templates", "", 401, "invalid or expired token", []string{"Authorization: Bearer nobody"}},
		{"GET /v2/templates", "", 401, "malformed authorization header", []string{"Authorization: Basic YTpi"}},
		{"POST /v2/templates", "", 400, "the body is empty: it must be a JSON object", nil},
		{"POST /v2/templates", "[]", 422, "the body must be a JSON object", nil},
		{"POST /v2/templates", "{}", 422, "/name: is required | /image: is required", nil},
		{"POST /v2/templates", `{"name":1,"image":2,"args":3,"disk":"4","ports":5,"env":6,"registry":7,"mounts":8,"serverless":9,"public":10,"category":11,"startSsh":12,"startJupyter":13,"allowedCudaVersions":14,"id":15}`, 422,
			"/name: must be a string | /image: must be a string | /args: must be a string | /disk: must be an integer | /ports: must be an array | /env: must be an object | /registry: must be a string | /mounts: must be an object | " +
				"/serverless: must be true or false | /public: must be true or false | /category: must be a string | /startSsh: must be true or false | /startJupyter: must be true or false | /allowedCudaVersions: must be an array | /id: unknown property", nil},
		{"POST /v2/templates", `{"name":"t","image":"i","mounts":{"network":[{"volumeId":"vol1","path":"/v"}]}}`, 422, "/mounts/network: unknown property", nil},
		{"POST /v2/templates", `{"name":"t","image":"i","mounts":{"persistent":{"size":9,"path":"x"}},"category":"TPU","allowedCudaVersions":["12"]}`, 422,
			"/mounts/persistent/size: must be 10 to 1048576 GB | /mounts/persistent/path: must be an absolute path without '.', '..', '//' and a last '/', and not '/' itself | /category: must be one of CPU, NVIDIA, AMD | /allowedCudaVersions/0: must be a CUDA version, major.minor", nil},
		{"POST /v2/templates", `{"name":"t","image":"i","registry":"{bobreg}"}`, 400, `/registry: registry credential "{bobreg}" does not exist`, nil},
		{"POST /v2/templates", `{"name":"t","image":"i"}`, 415, "the body must be application/json", []string{"Content-Type: text/plain"}},
		{"GET /v2/templates/nothere", "", 404, "template not found", nil},
		{"GET /v2/templates/{bobtpl}", "", 404, "template not found", nil},
		{"GET /v2/templates/{tpl}", "", 401, "invalid or expired token", []string{"Authorization: Bearer nobody"}},
		{"PATCH /v2/templates/nothere", "{", 404, "template not found", nil},
		{"PATCH /v2/templates/{bobtpl}", `{"name":"mine"}`, 404, "template not found", nil},
		{"PATCH /v2/templates/podyard-web", `{"name":"mine"}`, 404, "template not found", nil},
		{"PATCH /v2/templates/{tpl}", `{"name":"","image":"a b","disk":0,"ports":["x"],"extra":1}`, 422, "/name: must not be empty | /image: must have no white space and no control characters | /disk: must be 1 to 1048576 GB | /ports/0: must be port/protocol: 1 to 65535, and tcp, udp or http | /extra: unknown property", nil},
		{"PATCH /v2/templates/{tpl}", `{"name":"new","registry":"nothere"}`, 400, `/registry: registry credential "nothere" does not exist`, nil},
		{"DELETE /v2/templates/nothere", "", 404, "template not found", nil},
		{"DELETE /v2/templates/{bobtpl}", "", 404, "template not found", nil},
		{"DELETE /v2/templates/podyard-web", "", 404, "template not found", nil},
		{"GET /v2/catalog/templates", "", 401, "missing bearer token", []string{"Authorization:"}},
		{"GET /v2/catalog/templates", "", 401, "invalid or expired token", []string{"Authorization: Bearer nobody"}},
		{"GET /v2/catalog/templates?source=mine", "", 422, "source must be one of official, verified, community", nil},
		{"GET /v2/catalog/datacenters?regions=EUROPE,MARS", "", 422, "regions must be one of NORTH_AMERICA, SOUTH_AMERICA, EUROPE, ASIA, MIDDLE_EAST, AFRICA, OCEANIA, ANTARCTICA, UNKNOWN", nil},
		{"GET /v2/catalog/datacenters?networkVolumeTypes=TAPE", "", 422, "networkVolumeTypes must be one of STANDARD, HIGH_PERFORMANCE", nil},
		{"GET /v2/account/limits", "", 401, "missing bearer token", []string{"Authorization:"}},
		{"GET /v2/account/limits?owner=bob", "", 403, "access denied", asAdmin},
		{"GET /v2/account/limits?owner=*", "", 403, "access denied", nil},
		{"GET /v2/account/keys", "", 401, "missing bearer token", []string{"Authorization:"}},
		{"GET /v2/account/keys", "", 403, "access denied", nil},
		{"GET /v2/account/keys?owner=bob", "", 403, "access denied", asAdmin},
		{"GET /v2/account/keys?owner=", "", 403, "access denied", asAdmin},
		{"POST /v2/account/keys", `{"scopes":["pods:read"]}`, 403, "access denied", nil},
		{"POST /v2/account/keys", "", 400, "the body is empty: it must be a JSON object", asAdmin},
		{"POST /v2/account/keys", "[]", 422, "the body must be a JSON object", asAdmin},
		{"POST /v2/account/keys", "{}", 422, "/scopes: is required", asAdmin},
		{"POST /v2/account/keys", `{"expires":"soon","scopes":["*",1,"*"],"user":"","key":"mine"}`, 422, "/user: must have at least 1 character | /scopes/1: must be a string | /scopes/2: is there twice | /expires: must be a time as in RFC 3339, or null | /key: unknown property", asAdmin},
		{"POST /v2/account/keys", `{"scopes":"*","expires":"0001-01-01T00:00:00Z"}`, 422, "/scopes: must be an array | /expires: must be after 0001-01-01T00:00:00Z and before the year 10000", asAdmin},
		{"POST /v2/account/keys", `{"scopes":["*","operator","endpoint:e:work"]}`, 403, "/scopes/1: the key of this request does not have operator | /scopes/2: the key of this request does not have endpoint:e:work", asAdmin},
		{"POST /v2/account/keys", `{"user":"bob","scopes":["*"]}`, 403, "/user: only a key with the scope operator makes keys of other users", asAdmin},
		{"POST /v2/account/keys", `{"scopes":["*"]}`, 415, "the body must be application/json", append([]string{"Content-Type: text/plain"}, asAdmin...)},
		{"GET /v2/account/keys/{key}", "", 401, "invalid or expired token", []string{"Authorization: Bearer nobody"}},
		{"GET /v2/account/keys/{key}", "", 403, "access denied", nil},
		{"GET /v2/account/keys/nothere", "", 404, "key not found", asAdmin},
		{"PATCH /v2/account/keys/nothere", "{", 404, "key not found", asAdmin},
		{"PATCH /v2/account/keys/{key}", `{"user":"bob","scopes":[]}`, 422, "/user: unknown property | /scopes: must have 1 to 100 scopes", asAdmin},
		{"PATCH /v2/account/keys/{key}", `{"scopes":["operator"]}`, 403, "/scopes/0: the key of this request does not have operator", asAdmin},
		{"PATCH /v2/account/keys/{opkey}", `{"scopes":["*"]}`, 403, "the key has scopes that the key of this request does not have", asAdmin},
		{"DELETE /v2/account/keys/nothere", "", 404, "key not found", asAdmin},
		{"DELETE /v2/account/keys/{opkey}", "", 403, "the key has scopes that the key of this request does not have", asAdmin},
		{"DELETE /v2/account/keys/{key}", "", 403, "access denied", nil},
		{"POST /v2/account/keys/nothere/rotate", "", 404, "key not found", asAdmin},
		{"POST /v2/account/keys/{opkey}/rotate", "", 403, "the key has scopes that the key of this request does not have", asAdmin},
		{"POST /v2/account/keys/{key}/rotate", `{"overlap":604800001}`, 422, "/overlap: must be from 0 to 604800000 ms (7 days)", asAdmin},
		{"POST /v2/account/keys/{key}/rotate", `{"overlap":-1,"now":true}`, 422, "/overlap: must be from 0 to 604800000 ms (7 days) | /now: unknown property", asAdmin},
		{"GET /v2/account/ssh-keys", "", 401, "missing bearer token", []string{"Authorization:"}},
		{"GET /v2/account/ssh-keys", "", 401, "missing bearer token", []string{"Authorization: Bearer"}},
		{"GET /v2/account/ssh-keys", "", 401, "invalid or expired token", []string{"Authorization: Bearer nobody"}},
		{"PUT /v2/account/ssh-keys", "", 400, "the body is empty: it must be a JSON object", nil},
		{"PUT /v2/account/ssh-keys", "{}", 422, "/keys: is required", nil},
		{"PUT /v2/account/ssh-keys", `{"keys":"ssh-rsa AAA"}`, 422, "/keys: must be an array", nil},
		{"PUT /v2/account/ssh-keys", `{"keys":["ssh-rsa AAA",1,"rsa"],"user":"bob"}`, 422, "/keys/1: must be a string | /keys/2: must be a public key as in authorized_keys: type, key, and a comment if you like | /user: unknown property", nil},
		{"PUT /v2/account/ssh-keys", `{"keys":["ssh-rsa AAA","-----BEGIN OPENSSH PRIVATE KEY-----"]}`, 422, "/keys/1: must be a public key as in authorized_keys: type, key, and a comment if you like", nil},
	}
}

// absentRefusals are requests to operations that are not offered, with valid and with
// invalid bodies.
// balanceRefusals are those of requests to workers, for each method.
func balanceRefusals() (rows []refusal) {
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		rows = append(rows,
			refusal{method + " /lb/echo/x", "", 401, "missing bearer token", []string{"Authorization:"}},
			refusal{method + " /lb/echo/x", "", 401, "invalid or expired token", []string{"Authorization: Bearer nobody"}},
			refusal{method + " /lb/nothere/x", "", 404, "endpoint not found", nil},
			refusal{method + " /lb/echo/x", "", 400, "the endpoint has a queue: send jobs to its run operation", nil},
			refusal{method + " /lb/echo", "", 404, "The requested path was not found.", nil},
		)
	}
	return rows
}

func absentRefusals() (rows []refusal) {
	const delegations = "Delegations of registries are not offered by this service."
	for request, want := range map[string]string{
		"GET /v2/global-volumes/g": "global volume not found", "PATCH /v2/global-volumes/g": "global volume not found", "DELETE /v2/global-volumes/g": "global volume not found",
		"GET /v2/registries/delegations": delegations, "POST /v2/registries/delegations": delegations, "DELETE /v2/registries/delegations/d": delegations,
	} {
		body := ""
		if strings.HasPrefix(request, "P") {
			body = `{"name":"n"}`
		}
		rows = append(rows,
			refusal{request, body, 401, "missing bearer token", []string{"Authorization:"}},
			refusal{request, body, 404, want, nil},
			refusal{request, "{", 404, want, []string{"Content-Type: text/plain"}},
		)
	}
	const asOperator = "Authorization: Bearer " + operatorFree
	for _, act := range []string{"POST /v2/admin/cordon", "POST /v2/admin/uncordon", "POST /v2/admin/drain"} {
		const one = "exactly one of host, endpoint and server must be there"
		for body, want := range map[string]string{
			`{}`: one, `{"host":"us-tx-3-secure","endpoint":"echo"}`: one, `{"host":"us-tx-3-secure","server":"server","endpoint":"echo"}`: one,
		} {
			rows = append(rows, refusal{act, body, 400, want, []string{asOperator}})
		}
		for body, want := range map[string]string{
			`{"host":1}`: "/host: must be a string", `{"endpoint":""}`: "/endpoint: must not be empty", `{"server":null}`: "/server: must be a string",
			`{"host":"us-tx-3-secure","force":true}`: "/force: unknown property", `{"host":"us-tx-3-secure","stopPods":"yes"}`: "/stopPods: must be true or false",
		} {
			rows = append(rows, refusal{act, body, 422, want, []string{asOperator}})
		}
		for body, want := range map[string]string{
			`{"host":"mars"}`: "host not found", `{"endpoint":"nowhere"}`: "endpoint not found", `{"server":"other"}`: "server not found",
		} {
			rows = append(rows, refusal{act, body, 404, want, []string{asOperator}})
		}
		rows = append(rows, refusal{act, `{"endpoint":"echo","stopPods":true}`, 400, "/stopPods: is for the drain of a host", []string{asOperator}})
	}
	rows = append(rows,
		refusal{"DELETE /v2/admin/users/nobody", "", 404, "user not found", []string{asOperator}},
		refusal{"DELETE /v2/admin/users/root", "", 409, "the user is the caller's own", []string{asOperator}},
	)
	for _, act := range []string{
		"GET /v2/admin/audit", "POST /v2/admin/reload", "POST /v2/admin/cordon", "POST /v2/admin/uncordon", "POST /v2/admin/drain",
		"GET /v2/admin/state", "DELETE /v2/admin/users/bob", "DELETE /v2/admin/users/bob/jobs",
	} {
		rows = append(rows,
			refusal{act, "", 401, "missing bearer token", []string{"Authorization:"}},
			refusal{act, "", 401, "invalid or expired token", []string{"Authorization: Bearer nobody"}},
			refusal{act, "", 403, "access denied", nil},
		)
	}
	for _, path := range []string{"GET /v2/billing", "GET /v2/billing/pods", "GET /v2/billing/serverless", "GET /v2/billing/network-volumes"} {
		rows = append(rows,
			refusal{path, "", 401, "missing bearer token", []string{"Authorization:"}},
			refusal{path + "?bucketSize=minute", "", 422, "bucketSize must be one of hour, day, week, month, year", nil},
			refusal{path + "?startTime=yesterday", "", 422, "startTime must be a time as in RFC 3339", nil},
			refusal{path + "?endTime=2026-01-01", "", 422, "endTime must be a time as in RFC 3339", nil},
			refusal{path + "?lastN=0", "", 422, "lastN must be an integer from 1 to 10000", nil},
			refusal{path + "?lastN=2&startTime=2000-01-01T00:00:00Z", "", 400, "lastN and startTime or endTime exclude each other", nil},
			refusal{path + "?startTime=2000-01-02T00:00:00Z&endTime=2000-01-01T00:00:00Z", "", 400, "startTime must be before endTime", nil},
			refusal{path + "?bucketSize=hour&startTime=1900-01-01T00:00:00Z", "", 422, "the window has more than 10000 buckets", nil},
			refusal{path + "?bucketSize=year&lastN=3000", "", 422, "the window must begin and end within the years 1 to 9999", nil},
		)
	}
	return rows
}

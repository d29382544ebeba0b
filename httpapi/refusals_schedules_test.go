package httpapi_test

import "strings"

// scheduleRefusals are bad requests to schedules (docs/decisions.md 42).
func scheduleRefusals() []refusal {
	nobody := []string{"Authorization: Bearer nobody"}
	const (
		list  = "GET /v2/idle/schedules"
		post  = "POST /v2/idle/schedules"
		patch = "PATCH /v2/idle/schedules/{schedule}"
		run   = `"run":{"input":{}}`
	)
	return []refusal{
		{list, "", 401, "missing bearer token", []string{"Authorization:"}},
		{list, "", 401, "invalid or expired token", nobody},
		{list + "?owner=bob", "", 403, "access denied", nil},
		{"GET /v2/nowhere/schedules", "", 404, "endpoint not found", nil},
		{post, "", 400, "the body is empty: it must be a JSON object", nil},
		{post, "{", 400, "the body is not JSON: unexpected EOF at byte 1", nil},
		{post, "[]", 422, "the body must be a JSON object", nil},
		{post, "{}", 422, "/cron: is required | /run: is required", nil},
		{post, `{"cron":"* * * * *","cron":"* * * * *"}`, 400, "the body is not JSON: duplicate object member name at /cron, byte 20", nil},
		{post, `{"cron":"* * * * *","run":{"input":{},"input":{}}}`, 400, "the body is not JSON: duplicate object member name at /run/input, byte 38", nil},
		{post, `{"cron":"* * * * *","run":{"input":{},"policy":{"ttl":1,"ttl":2}}}`, 400, "the body is not JSON: duplicate object member name at /run/policy/ttl, byte 56", nil},
		{post, `{"cron":1,"timeZone":2,"run":3,"overlap":4,"catchUp":5,"enabled":6,"next":7}`, 422, "/cron: must be a string | /timeZone: must be a string | /run: must be an object | /overlap: must be a string | /catchUp: must be a string | /enabled: must be true or false | /next: unknown property", nil},
		{post, `{"cron":null,"timeZone":null,"run":null,"overlap":null,"catchUp":null,"enabled":null}`, 422, "/cron: must be a string | /timeZone: must be a string | /run: must be an object | /overlap: must be a string | /catchUp: must be a string | /enabled: must be true or false", nil},
		{post, `{"cron":"",` + run + `}`, 422, "/cron: must have five fields (minute, hour, day of the month, month, day of the week), not 0", nil},
		{post, `{"cron":"@daily",` + run + `}`, 422, "/cron: must have five fields (minute, hour, day of the month, month, day of the week), not 1", nil},
		{post, `{"cron":"0 0 * * * *",` + run + `}`, 422, "/cron: must have five fields (minute, hour, day of the month, month, day of the week), not 6", nil},
		{post, `{"cron":"60 * * * *",` + run + `}`, 422, "/cron: minute: 60 is not from 0 to 59", nil},
		{post, `{"cron":"* 1-x * * *",` + run + `}`, 422, `/cron: hour: "x" is no value`, nil},
		{post, `{"cron":"0 0 30 2 *",` + run + `}`, 422, "/cron: day of the month: no month of the expression has such a day, so that it would never fire", nil},
		{post, `{"cron":"` + strings.Repeat("1,", 100) + `1 * * * *",` + run + `}`, 422, "/cron: must have at most 200 bytes", nil},
		{post, `{"cron":"* * * * *","timeZone":"",` + run + `}`, 422, `/timeZone: "" is no time zone of the IANA database, such as Europe/Berlin`, nil},
		{post, `{"cron":"* * * * *","timeZone":"Local",` + run + `}`, 422, `/timeZone: "Local" is no time zone of the IANA database, such as Europe/Berlin`, nil},
		{post, `{"cron":"* * * * *","timeZone":"../etc/passwd",` + run + `}`, 422, `/timeZone: "../etc/passwd" is no time zone of the IANA database, such as Europe/Berlin`, nil},
		{post, `{"cron":"* * * * *","overlap":"kill","catchUp":"",` + run + `}`, 422, "/overlap: must be one of skip, queue, allow | /catchUp: must be one of none, last, all", nil},
		{post, `{"cron":"* * * * *","run":{}}`, 422, "/run/input: is required", nil},
		{post, `{"cron":"* * * * *","run":{"input":[],"webhook":"x","policy":{"ttl":1},"queue":{"priority":10},"s3Config":1}}`, 422, "/run/input: must be a JSON object | /run/webhook: must be an absolute http or https URL | /run/policy/ttl: must be from 10000 to 604800000 milliseconds | /run/queue/priority: must be from 0 to 9 | /run/s3Config: must be an object", nil},
		{post, `{"cron":"* * * * *","run":{"s3Config":{"accessId":1}}}`, 422, "/run/input: is required | /run/s3Config/accessId: must be a string", nil},
		{post, `{"cron":"* * * * *","run":{"input":{},"queue":{"startAfter":1000}}}`, 422, "/run/queue/startAfter: must be absent: the schedule says when its jobs start", nil},
		{post, `{"cron":"* * * * *","run":{"input":{},"queue":{"startAfter":"2030-01-01T00:00:00Z"}}}`, 422, "/run/queue/startAfter: must be absent: the schedule says when its jobs start", nil},
		{post, `{"cron":"* * * * *","run":{"input":{"a":"` + strings.Repeat("x", 1<<20) + `"}}}`, 413, "the body is larger than 1048576 bytes (1 MB)", nil},
		{"POST /v2/nowhere/schedules", "{", 404, "endpoint not found", nil},
		{post + "?owner=bob", "{}", 403, "access denied", nil},
		{"GET /v2/idle/schedules/nothere", "", 404, "schedule not found", nil},
		{"GET /v2/idle/schedules/{bobsched}", "", 404, "schedule not found", nil},
		{"GET /v2/echo/schedules/{schedule}", "", 404, "schedule not found", nil},
		{"GET /v2/idle/schedules/{schedule}", "", 401, "invalid or expired token", nobody},
		{"PATCH /v2/idle/schedules/nothere", "{", 404, "schedule not found", nil},
		{"PATCH /v2/idle/schedules/{bobsched}", `{"enabled":false}`, 404, "schedule not found", nil},
		{"PATCH /v2/echo/schedules/{schedule}", `{"enabled":false}`, 404, "schedule not found", nil},
		{patch, "{}", 422, "the body must name at least one of cron, timeZone, run, overlap, catchUp, enabled", nil},
		{patch, `{"enabled":"no"}`, 422, "/enabled: must be true or false", nil},
		{patch, `{"enabled":false,"cron":"* * * *"}`, 422, "/cron: must have five fields (minute, hour, day of the month, month, day of the week), not 4", nil},
		{patch, `{"enabled":false,"timeZone":"Europe"}`, 422, `/timeZone: "Europe" is no time zone of the IANA database, such as Europe/Berlin`, nil},
		{patch, `{"enabled":false,"run":{"webhook":"https://example.com"}}`, 422, "/run/input: is required", nil},
		{patch, `{"enabled":false,"id":"x","outcomes":[]}`, 422, "/id: unknown property | /outcomes: unknown property", nil},
		{"DELETE /v2/idle/schedules/nothere", "", 404, "schedule not found", nil},
		{"DELETE /v2/idle/schedules/{bobsched}", "", 404, "schedule not found", nil},
		{"DELETE /v2/echo/schedules/{schedule}", "", 404, "schedule not found", nil},
		{"POST /v2/idle/schedules/nothere/run", "", 404, "schedule not found", nil},
		{"POST /v2/idle/schedules/{bobsched}/run", "", 404, "schedule not found", nil},
		{"POST /v2/echo/schedules/{schedule}/run", "", 404, "schedule not found", nil},
	}
}

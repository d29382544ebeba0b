// Package console is the web console: pages that show endpoints, jobs, workers, pods and
// their logs, and say why a job waits. docs/console.md shows its pages.
//
// A Console is an http.Handler. A program mounts it under any path, beside the handler of
// the API:
//
//	api := httpapi.New(services, &httpapi.Options{Auth: auth, InFlight: inFlight})
//	c, err := console.New(api, &console.Options{Auth: auth, Jobs: services.Jobs, InFlight: inFlight})
//	mux.Handle("/v2/", api)
//	mux.Handle("/console/", c)
//
// # How it works
//
// The pages are plain JavaScript modules that are part of the program. Nothing is loaded
// from another host, and nothing has to be built.
//
// A user signs in with a key of the API. Every request of the pages becomes a request to
// the handler of the API in the same process, with that key. So scopes, ownership, quotas
// and the audit log work as they do for any other client: the console can do nothing that
// the key cannot.
//
// # Sessions
//
// The key is sent once, in the body of a POST. It is then in a cookie, encrypted and
// authenticated (AES-256-GCM) with Options.Secret. The server keeps no sessions, so a restart
// ends none of them, and every server of a cluster with the same secret takes them. The
// cookie is HttpOnly, Secure and SameSite=Strict. A session ends 30 minutes after the last
// act of its user, 12 hours after it began, when the user signs out, and when the key is
// revoked: the API checks the key at each request.
package console

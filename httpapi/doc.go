// Package httpapi serves podyard over HTTP: the control API (pods, registries, catalog,
// endpoints), the jobs API with the worker protocol, and the legacy reset, each an
// http.Handler to be mounted anywhere, under a prefix too, alone or together.
//
// A handler decodes, calls a service and encodes; the rules are in the services. What is
// here is the wire: keys and scopes, quotas and rates, sizes, strict decoding, problem
// documents, the form of every answer.
//
// Requests are checked in this order: route (404, 405), key (401), quota (429), scope
// (403), existence (404), rate (429), media type, size and arrival of the body (415, 413,
// 408), syntax (400), schema (422), rules (400), state (409), capacity (400).
//
// Nothing listens: hand the handler to a server of your own. Give that server a
// ReadHeaderTimeout and no WriteTimeout, because several operations hold a request for
// minutes. The time that a body may take is Options.BodyTimeout; a ReadTimeout would end
// the requests that are held, too.
package httpapi

// Package endpoints has the records and rules of serverless endpoints: what a request to
// create or change an endpoint may contain, who may see an endpoint, and which change is a
// release.
//
// A Service has the rules over a Store, which a backend implements. It does not act on jobs
// or workers: serverless.Service has the same operations and also acts on the jobs and
// workers of the endpoint. A program that only runs jobs needs package serverless alone.
//
// An endpoint has an owner, the user who created it, and is visible to that user only. An
// endpoint without an owner is shared: the program declared it, every user may use it and no
// user may change it.
//
// A release is a change of what workers are made of, such as image, environment or machines.
// Each release increments Endpoint.Version. Workers of an older version are replaced.
package endpoints

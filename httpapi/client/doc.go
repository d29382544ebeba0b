// Package client calls the interface over HTTP: podyard, and the hosted service with the
// same interface.
//
//	c, err := client.New(&client.Options{URL: "https://pods.example.com", Key: key})
//	out, err := client.Run[Prompt, Image](ctx, c.Jobs("sdxl"), Prompt{Text: "a cat"})
//
// The operations are in groups: [Client.Jobs] has the jobs of an endpoint, and the fields of
// a Client have the control API. Requests end when their context ends; a Client has no other
// time limit.
//
// # Errors
//
// An answer that is an error is an [*Error] with its status and texts. A job that did not
// complete is a [*JobError]. Everything else is an error of the connection or of the context.
//
// # Repetitions
//
// A request is repeated after a broken connection, 502, 503 and 504 if a repetition cannot
// change anything: the methods GET, PUT and DELETE, a cancel, and a request with an
// idempotency key. Every request is repeated after a 429, which says that nothing was done.
// The header Retry-After is respected. See [Retry].
//
// # Additions
//
// Nothing is sent that the hosted service does not have, unless the program asks for it:
// by [Options].Additions, by a field or a method whose comment says that it is an addition.
// With Additions every create and submit has an idempotency key, so that it can be repeated,
// and lists are read in pages.
package client

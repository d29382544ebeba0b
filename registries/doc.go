// Package registries keeps the credentials that private images are pulled with.
//
// A [Service] makes, lists and deletes them for their owner. It answers with a
// [Registry], which has no secret in it. A [Credential] leaves the service only through
// [Service.PullSecret], and to a [Store]. A registry of another user is not found.
//
// Where the interface is silent, we chose: names need not be unique; there is no
// update, because the published API has none; a registry that a pod uses cannot be
// deleted. That check is a best effort, because pods are kept in another store
// (docs/decisions.md 9).
package registries

// Package registries keeps credentials of container registries: what a pod needs to
// pull a private image.
//
// A [Service] makes, lists and deletes them for their owner and answers with a
// [Registry], which has no secret in it; a [Credential] leaves only through
// [Service.PullSecret] and to a [Store]. A registry of another user is not found.
//
// Where the interface is silent, we chose: names need not be unique; there is no update
// (the published API has none); deleting a registry that a pod uses is refused, as a best
// effort, because pods are kept in another store (decisions, row 9).
package registries

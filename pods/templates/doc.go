// Package templates keeps presets of container settings. Pods and endpoints are made
// from them.
//
// A [Service] makes, lists, changes and deletes the templates of a user in a [Store].
// It hands settings to package pods, and to package serverless by an adapter. A
// template is applied once: what was made from it does not change with it.
//
// A template can be read by its owner, and by everybody if it is public or belongs to
// the catalog that the program brings. Only its owner can change it; for everybody else
// it is not found.
//
// Where the interface is silent, we chose: a public template shows no registry
// credential to others, and they use it without one; the list of community templates
// leaves out the caller's own; no template is "verified" here; a template is in use
// while a pod of its owner was made from it, so that no other user can block its
// deletion. That check is a best effort, because pods are kept in another store
// (docs/decisions.md 9).
package templates

// Package templates keeps presets of container settings, from which pods and endpoints are
// made.
//
// A [Service] makes, lists, changes and deletes the templates of a user in a [Store]. It gives
// settings to package pods, and by an adapter to package serverless. A template is applied
// once: a later change of it does not change what was made from it.
//
// Its owner can read a template, and everybody can if it is public or one of the program's own.
// Only its owner can change it; for everybody else it is not found.
//
// Where the interface is silent, we chose: a public template shows no registry credential to
// others, and they use it without one; the list of community templates leaves out the caller's
// own; no template is "verified" here; a template is in use while a pod of its owner was made
// from it, so that no other user can block its deletion. That check is a best effort, because
// pods are kept in another store (docs/decisions.md 9).
package templates

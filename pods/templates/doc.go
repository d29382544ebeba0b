// Package templates keeps presets of container settings that pods and endpoints are made
// from.
//
// A [Service] makes, lists, changes and deletes the templates of a user over a [Store],
// and hands settings to package pods, and to package serverless by way of an adapter. A
// template is applied once: what was made from it does not change with it.
//
// A template can be read by its owner, and by everybody if it is public or one of the
// catalog's, which the program brings. Only its owner changes it: to others it is not
// found.
//
// Where the interface is silent, we chose: a public template shows no registry credential
// to others, and is used without one; the listing of community templates leaves out the
// caller's own; nothing is "verified" here; a template is in use while a pod of its owner
// was made from it, so that nobody else can hold on to it. That check is a best effort,
// because pods are kept in another store (decisions, row 9).
package templates

// Package volumes keeps network volumes: storage in a data center that pods mount and
// that outlives them (docs/interface.md 2.3 and 2.10).
//
// A [Service] makes, lists, grows and deletes volumes for their owner in a [Store], and
// tells package pods where a volume is. A volume of another user is not found. The
// content of a volume is the business of the runtimes; a [Storage] releases it after a
// delete.
//
// Where the interface is silent, we chose: names need not be unique; a volume that
// names no type has the first type of its data center; a data center without network
// storage, or without the type, breaks a rule (400); a volume that a pod names cannot
// be deleted. That check is a best effort, because pods are kept in another store
// (docs/decisions.md 9).
package volumes

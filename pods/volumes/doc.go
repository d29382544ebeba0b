// Package volumes keeps network volumes: storage in a data center that pods mount and
// that outlives them (section 2.3 of the interface).
//
// A [Service] makes, lists, grows and deletes them for their owner over a [Store], and
// tells package pods where a volume is. A volume of another user is not found. What is in
// a volume is the business of the runtimes; a [Storage] releases it after a delete.
//
// Where the interface is silent, we chose: names need not be unique; a volume that names
// no type has the first one of its data center; one in a data center without network
// storage, or of a type that it does not have, breaks a rule (400); deleting a volume that
// a pod names is refused, as a best effort, because pods are kept in another store
// (decisions, row 9).
package volumes

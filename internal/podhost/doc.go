// Package podhost is what runtimes have in common whose pods are on this machine: the table
// of their pods, the queue that does one thing at a time for a pod, the public ports that a
// pod keeps, the changes that watchers hear of, the load between two samples, the file with
// what is on record of a pod. It knows neither processes nor an engine.
package podhost

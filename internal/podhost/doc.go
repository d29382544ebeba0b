// Package podhost has what the runtimes of this machine share: the table of their pods,
// the queue that does one thing at a time for a pod, the public ports that a pod keeps,
// the changes that watchers hear of, the load between two samples, the file with the
// record of a pod, and the memory of the machine. It knows neither processes nor an
// engine.
package podhost

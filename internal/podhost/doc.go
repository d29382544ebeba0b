// Package podhost has the parts that all runtimes of one machine share: the table of their
// pods, a queue of jobs for each pod, the allocation of public ports, the distribution of
// state changes to watchers, the CPU load between two samples, the file with a pod's
// record, and the size of the machine's memory. It has no code for processes or engines.
package podhost

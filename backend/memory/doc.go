// Package memory implements every store in memory: records on go-memdb, a queue of jobs, and
// a simulated runtime of pods. Everything is lost when the process ends. Use it for tests,
// for trials, and for programs whose data may be lost.
package memory

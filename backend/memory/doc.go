// Package memory keeps everything in memory: records on go-memdb, a purpose-built queue
// of jobs, and a simulated runtime of pods. It is gone when the process ends: good for
// tests, for trying things out, and for programs that can lose it.
package memory

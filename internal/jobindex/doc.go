// Package jobindex is what a queue keeps of its jobs in memory: their states without
// payloads, the line of each endpoint, the order of what is due, the counters. Nothing in
// it is proportional to the number of jobs but the room it takes, and that has no
// pointers: a million jobs cost the garbage collector nothing.
//
// It decides nothing: serverless.State.Apply does. The queue in memory and the one on
// disk keep their jobs in it.
package jobindex

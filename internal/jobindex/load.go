package jobindex

import "github.com/podyard/podyard/serverless/queue"

// weigh adds a job to the queued jobs of its priority, n times.
func (l *jobList) weigh(st queue.Status, f queue.Flags, priority uint8, n int64) {
	if st != queue.InQueue {
		return
	}
	if f&queue.LowPriority != 0 {
		priority = queue.MaxPriority + 1
	}
	l.queued[priority] += n
}

// Undrained returns the bytes of chunks that were not read.
func (x *Index) Undrained() int64 { return x.undrained }

// Priorities implements queue.Measurer.
func (x *Index) Priorities(endpoint string) (n [queue.MaxPriority + 2]int64) {
	if l := x.listOf(endpoint); l != nil {
		n = l.queued
	}
	return n
}

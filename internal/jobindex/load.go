package jobindex

import "github.com/podyard/podyard/serverless/queue"

// weigh adds a job to the counts that only metrics use, n times.
func (x *Index) weigh(l *jobList, s *queue.State, n int64) {
	x.undrained += n * s.Stream
	if s.Status != queue.InQueue {
		return
	}
	p := s.Priority
	if s.Flags&queue.LowPriority != 0 {
		p = queue.MaxPriority + 1
	}
	l.queued[p] += n
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

package podhost

import "sync"

// A Queue runs the jobs of one pod, one at a time and in order. A goroutine exists only
// while there are jobs. Callers do not wait for their jobs, and queues of several pods run
// in parallel. It is safe for concurrent use. A job may add jobs.
type Queue struct {
	// Go starts a goroutine.
	Go func(run func())

	mu   sync.Mutex
	jobs []func()
	busy bool // the goroutine exists
}

// Do adds a job.
func (q *Queue) Do(job func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(job)
}

// TryDo adds a job unless another one runs or waits. It reports whether it added the job.
func (q *Queue) TryDo(job func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy {
		return false
	}
	q.add(job)
	return true
}

func (q *Queue) add(job func()) {
	q.jobs = append(q.jobs, job)
	if !q.busy {
		q.busy = true
		q.Go(q.run)
	}
}

func (q *Queue) run() {
	for job := q.next(); job != nil; job = q.next() {
		job()
	}
}

func (q *Queue) next() (job func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.jobs) == 0 {
		q.busy = false
		return nil
	}
	job, q.jobs[0] = q.jobs[0], nil // or the array would keep what the job captures
	q.jobs = q.jobs[1:]
	return job
}

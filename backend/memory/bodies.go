package memory

import (
	"github.com/podyard/podyard/serverless/queue"
)

// A body has the payloads of a job.
type body struct {
	input, output []byte
}

// An extra has what few jobs have.
type extra struct {
	webhook     string
	workerExtra []byte // Job.Extra
	trace       queue.Trace
	err         string
	chunks      [][]byte // chunks that are not drained
	attempts    []queue.Attempt
	tries       []queue.JobAttempt // of the present run and, after those, of earlier ones
	leases      []queue.JobLease
}

// bodies has the bodies by job number. They are outside the index, because the index has no
// pointers.
type bodies struct{ pages []*bodyPage }

const bodiesInPage = 1024

type bodyPage struct {
	used   int
	bodies [bodiesInPage]body
}

// at returns the body of a job that has one.
func (t *bodies) at(i uint32) *body { return &t.pages[i/bodiesInPage].bodies[i%bodiesInPage] }

// put makes room for the body of a new job and returns it.
func (t *bodies) put(i uint32) *body {
	n := int(i / bodiesInPage)
	for n >= len(t.pages) {
		t.pages = append(t.pages, nil)
	}
	if t.pages[n] == nil {
		t.pages[n] = &bodyPage{}
	}
	t.pages[n].used++
	return t.at(i)
}

// drop removes the body of a job, and its page if it was the last one there.
func (t *bodies) drop(i uint32) {
	p := t.pages[i/bodiesInPage]
	p.bodies[i%bodiesInPage] = body{}
	if p.used--; p.used == 0 {
		t.pages[i/bodiesInPage] = nil
	}
}

package memory

import "github.com/podyard/podyard/serverless"

// A body is the payloads of a job.
type body struct {
	input, output []byte
}

// An extra is what few jobs have.
type extra struct {
	webhook  string
	forWork  []byte // Job.Extra
	err      string
	chunks   [][]byte // those not drained
	attempts []serverless.Attempt
}

// bodies are the payloads by the number of the job, apart from the index, which has no
// pointers.
type bodies struct{ pages []*bodyPage }

const bodiesInPage = 1024

type bodyPage struct {
	used   int
	bodies [bodiesInPage]body
}

// at is the body of a job that has one.
func (t *bodies) at(i uint32) *body { return &t.pages[i/bodiesInPage].bodies[i%bodiesInPage] }

// put makes room for the body of a job that has none.
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

// drop gives the body of a job up, and a page with its last one.
func (t *bodies) drop(i uint32) {
	p := t.pages[i/bodiesInPage]
	p.bodies[i%bodiesInPage] = body{}
	if p.used--; p.used == 0 {
		t.pages[i/bodiesInPage] = nil
	}
}

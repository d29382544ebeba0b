package workers

import (
	"context"
	"slices"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// A Row is what one server knows of a worker that it has heard of, for the others.
type Row struct {
	Key
	Server     string        // the id of the server
	AliveUntil queue.Instant // when the row is over
	IdleSince  queue.Instant // when the worker last had a job, or joined
	Served     bool          // it has finished a job
	Polling    bool          // it waits for a job
	Draining   bool          // it gets no more jobs
	Unhealthy  string        // why it reported itself unhealthy; empty: it did not
	Local      bool          // it runs in the program of Server
	Stops      []Stop        // what it must stop, ordered by job
}

// A Stop is a job that a worker must stop.
type Stop struct {
	Job   queue.JobID
	Since queue.Instant
}

// A Presence keeps the rows of all servers that share a queue. It is safe for concurrent use and
// shares nothing with its callers. It need not be durable. A row that is over may be deleted.
// serverlesstest.TestPresence has its rules.
type Presence interface {
	// Put writes rows. A row takes the place of that of the same worker and server.
	Put(ctx context.Context, now queue.Instant, rows []Row) error
	// Remove deletes the rows that all servers have of some workers.
	Remove(ctx context.Context, keys []Key) error
	// List returns the rows that are not over at now, ordered by endpoint, worker and server.
	List(ctx context.Context, now queue.Instant) ([]Row, error)
}

// ShareWith makes the registry keep what other servers must know. Call it before any other
// method. server is the id of this one, and lease how long a worker is alive after a sign of it.
func (r *Registry) ShareWith(server string, lease time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server, r.lease = server, lease
}

// Unwritten returns the rows that must be written now, and the workers whose rows must be
// removed. Call Written when that is done.
func (r *Registry) Unwritten(now queue.Instant) (rows []Row, gone []Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.endpoints {
		for _, w := range e.workers {
			if row, ok := w.record.unwritten(now, r.lease); ok {
				row.Server = r.server
				rows = append(rows, row)
			}
		}
	}
	return rows, slices.Clone(r.gone)
}

// Written records that the rows of Unwritten were written, and the others removed.
func (r *Registry) Written(now queue.Instant, rows []Row, gone []Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, row := range rows {
		if w := r.find(row.Key); w != nil {
			w.record.wrote(now, row)
		}
	}
	r.gone = slices.DeleteFunc(r.gone, func(k Key) bool { return slices.Contains(gone, k) })
}

// Merge takes in the rows of the other servers. It returns the endpoints where workers are new,
// and the first instant at which Unresponsive may say something of jobs to stop; 0: none.
func (r *Registry) Merge(now queue.Instant, rows []Row) (joined []string, check queue.Instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropRemoved(now, rows)
	for i := range rows {
		row := &rows[i]
		if row.Server == r.server || row.AliveUntil <= now || slices.Contains(r.gone, row.Key) {
			continue
		}
		w, added := r.join(row.Key, now)
		if row.Polling || row.Served || row.Local {
			r.asks(w)
		}
		if w.record.merge(row, now) {
			check = queue.Sooner(check, now.Add(stopGrace))
		}
		if added {
			joined = append(joined, row.Endpoint)
		}
		r.track(w)
		r.schedule(w)
	}
	return joined, check
}

// dropRemoved removes the workers whose row another server has removed.
func (r *Registry) dropRemoved(now queue.Instant, rows []Row) {
	there := map[Key]bool{}
	for i := range rows {
		if rows[i].Server == r.server {
			there[rows[i].Key] = true
		}
	}
	for _, e := range r.endpoints {
		for k, w := range e.workers {
			if there[Key{w.Key().Endpoint, k}] || !w.record.wasWritten(now) {
				continue
			}
			if w.record.expires() {
				r.remove(w)
			} else {
				w.record.rewrite()
			}
		}
	}
}

package queue

import (
	"context"
	"fmt"
)

// An Outbox keeps webhook deliveries until they are settled. The effect PutOutbox creates an
// entry. An entry keeps the payloads of its (job, run), even when the job is deleted or
// retried afterwards.
//
// Each entry is delivered at least once. An entry stays until the Record that settles it is
// durable. While a lease lasts, only its caller has the delivery. When the lease has ended,
// or the store was opened again, Deliveries returns the entry again: leases need not survive
// the process.
//
// An attempt may therefore be sent and never recorded, because the process ended, the store
// failed or the lease ended. The next attempt then has the same id, so that the receiver can
// recognise it, and the lost attempt does not count as a try.
type Outbox interface {
	// Deliveries leases entries that are due at now, at most limit, earliest first. The
	// leases end at until. Of each job it returns only Ref, Owner, Key, State and Webhook.
	Deliveries(ctx context.Context, now, until Instant, limit int) ([]Delivery, error)
	// LoadDelivery sets Job of a delivery that Deliveries returned to the job as it was when it
	// ended, with its payloads, or sets Fault. It returns ErrLeaseLost if the lease was lost.
	LoadDelivery(ctx context.Context, d *Delivery) error
	// Record adds attempts to the log, and settles or reschedules the entry of each. It
	// ignores an attempt whose lease was lost.
	Record(ctx context.Context, a []Attempt) error
	// NextDelivery returns the next instant at which Deliveries returns an entry, or an earlier
	// one; 0 means never.
	NextDelivery(ctx context.Context) (Instant, error)
	// Attempts returns the delivery log of a job, oldest first, as far as the log is kept.
	Attempts(ctx context.Context, ref Ref) ([]Attempt, error)
}

// A Delivery is a webhook that is to be sent.
type Delivery struct {
	ID    string // the same for every attempt
	Token Token  // of the lease
	Tries int    // earlier attempts
	Job   Job    // as it was when it ended; LoadDelivery adds input and output
	Fault string // not empty: the payloads are damaged, the delivery must fail with this text
	Body  []byte // what is sent instead of the job; nil: the job
}

// Payload returns the body of the webhook: the job with its input and the URL that it is sent to,
// unless d has another one.
func (d *Delivery) Payload() []byte {
	if d.Body != nil {
		return d.Body
	}
	return d.Job.appendJSON(nil, true, d.Job.Webhook)
}

// An Attempt is the result of one try to send a Delivery.
type Attempt struct {
	Ref
	DeliveryID string
	Token      Token
	At         Instant
	Next       Instant // when to try again; 0: no more, the delivery is settled
	Postponed  bool    // does not count as an attempt: the receiver was at its limit, or the service stopped
	Status     int     // HTTP status of the answer; 0: no answer
	Err        string
}

// DeliveryID returns the id of the webhook of one run of a job. It is the same for every
// attempt.
func DeliveryID(ref Ref, run uint32) string {
	return fmt.Sprintf("msg_%s_%d", ref.ID, run)
}

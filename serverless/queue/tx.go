package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/podyard/podyard/internal/unwrap"
	"github.com/podyard/podyard/problem/idempotency"
)

// A Transactor is an optional interface of a JobQueue over a database, in which programs have tables
// of their own.
type Transactor interface {
	// InTx returns the queue in a transaction of the caller on the same database, which only the
	// caller commits. It returns an error for a value that is no transaction which it can use.
	InTx(tx any) (Tx, error)
}

// A Tx is the part of a JobQueue that works in a transaction of its caller. What it adds is there
// exactly if the transaction commits. It is not safe for concurrent use.
type Tx interface {
	// FindKey also finds what the transaction has added.
	idempotency.Finder
	// Enqueue is JobQueue.Enqueue. After an error that is not of the database the transaction is as
	// it was before the call.
	Enqueue(ctx context.Context, jobs []Job) error
}

// ErrNoTx is the error of InTx for a queue that is no Transactor.
var ErrNoTx = fmt.Errorf("serverless: this queue has no transactions of its callers, as one in a PostgreSQL database has: %w", errors.ErrUnsupported)

// InTx returns q, or the queue that it wraps, in a transaction of the caller: see Transactor.
func InTx(q JobQueue, tx any) (Tx, error) {
	t, ok := unwrap.As[Transactor](q)
	if !ok {
		return nil, ErrNoTx
	}
	return t.InTx(tx)
}

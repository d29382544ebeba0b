package memory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/hashicorp/go-memdb"

	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/endpoints"
)

// Endpoints is an endpoints.Store in memory. It is safe for concurrent use.
type Endpoints struct {
	keyed
	counted
	db *memdb.MemDB
}

var _ endpoints.Store = (*Endpoints)(nil)

const endpointTable = "endpoint"

// NewEndpoints returns an empty store.
func NewEndpoints() *Endpoints {
	db, err := memdb.NewMemDB(&memdb.DBSchema{Tables: map[string]*memdb.TableSchema{
		endpointTable: {Name: endpointTable, Indexes: map[string]*memdb.IndexSchema{
			"id": {Name: "id", Unique: true, Indexer: &memdb.StringFieldIndex{Field: "ID"}},
		}},
	}})
	if err != nil {
		panic(fmt.Sprintf("memory: the endpoint schema is wrong: %v", err)) // the schema is a constant
	}
	return &Endpoints{counted: newCounted(), db: db}
}

// Create implements endpoints.Store.
func (s *Endpoints) Create(_ context.Context, e *endpoints.Endpoint) error {
	tx := s.db.Txn(true)
	defer tx.Abort()
	if old, err := tx.First(endpointTable, "id", e.ID); err != nil {
		return fmt.Errorf("memory: create endpoint %q: %w", e.ID, err)
	} else if old != nil {
		return endpoints.ErrExists
	}
	if err := s.tally.Move(budget.Holding{}, e.Holding()); err != nil {
		return err
	}
	return commitEndpoint(tx, e)
}

// CreateKeyed implements endpoints.Store.
func (s *Endpoints) CreateKeyed(ctx context.Context, e *endpoints.Endpoint, r idempotency.Record) error {
	return s.addKeyed(func() error { return s.Create(ctx, e) }, r)
}

// Get implements endpoints.Store.
func (s *Endpoints) Get(_ context.Context, id string) (*endpoints.Endpoint, error) {
	return firstEndpoint(s.db.Txn(false), id)
}

func firstEndpoint(tx *memdb.Txn, id string) (*endpoints.Endpoint, error) {
	v, err := tx.First(endpointTable, "id", id)
	if err != nil {
		return nil, fmt.Errorf("memory: endpoint %q: %w", id, err)
	}
	if v == nil {
		return nil, endpoints.ErrNotFound
	}
	return v.(*endpoints.Endpoint).Clone(), nil
}

func commitEndpoint(tx *memdb.Txn, e *endpoints.Endpoint) error {
	if err := tx.Insert(endpointTable, e.Clone()); err != nil {
		return fmt.Errorf("memory: write endpoint %q: %w", e.ID, err)
	}
	tx.Commit()
	return nil
}

// List implements endpoints.Store. It yields the endpoints as they were when the iteration
// began.
func (s *Endpoints) List(context.Context) iter.Seq2[*endpoints.Endpoint, error] {
	return func(yield func(*endpoints.Endpoint, error) bool) {
		it, err := s.db.Txn(false).Get(endpointTable, "id")
		if err != nil {
			yield(nil, fmt.Errorf("memory: list endpoints: %w", err))
			return
		}
		var all []*endpoints.Endpoint
		for v := it.Next(); v != nil; v = it.Next() {
			all = append(all, v.(*endpoints.Endpoint).Clone())
		}
		slices.SortFunc(all, func(a, b *endpoints.Endpoint) int {
			return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
		})
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Update implements endpoints.Store. fn runs once, while no other endpoint can be changed.
func (s *Endpoints) Update(_ context.Context, id string, fn func(*endpoints.Endpoint) error) (*endpoints.Endpoint, error) {
	tx := s.db.Txn(true)
	defer tx.Abort()
	e, err := firstEndpoint(tx, id)
	if err != nil {
		return nil, err
	}
	was := e.Holding()
	if err := fn(e); err != nil {
		return nil, err
	}
	if err := s.tally.Move(was, e.Holding()); err != nil {
		return nil, err
	}
	return e, commitEndpoint(tx, e)
}

// Delete implements endpoints.Store.
func (s *Endpoints) Delete(_ context.Context, id string) error {
	tx := s.db.Txn(true)
	defer tx.Abort()
	e, err := firstEndpoint(tx, id)
	if err != nil {
		return err
	}
	if err := tx.Delete(endpointTable, e); err != nil {
		return fmt.Errorf("memory: delete endpoint %q: %w", id, err)
	}
	tx.Commit()
	return s.tally.Move(e.Holding(), budget.Holding{})
}

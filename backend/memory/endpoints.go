package memory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/hashicorp/go-memdb"

	"github.com/podyard/podyard/serverless"
)

// Endpoints is a serverless.EndpointStore in memory.
type Endpoints struct{ db *memdb.MemDB }

var _ serverless.EndpointStore = (*Endpoints)(nil)

const endpointTable = "endpoint"

// NewEndpoints returns an empty store.
func NewEndpoints() *Endpoints {
	db, err := memdb.NewMemDB(&memdb.DBSchema{Tables: map[string]*memdb.TableSchema{
		endpointTable: {Name: endpointTable, Indexes: map[string]*memdb.IndexSchema{
			"id": {Name: "id", Unique: true, Indexer: &memdb.StringFieldIndex{Field: "ID"}},
		}},
	}})
	if err != nil {
		panic(fmt.Sprintf("memory: the endpoint schema is wrong: %v", err)) // it is a constant
	}
	return &Endpoints{db}
}

// Create adds e.
func (s *Endpoints) Create(_ context.Context, e *serverless.Endpoint) error {
	tx := s.db.Txn(true)
	defer tx.Abort()
	if old, err := tx.First(endpointTable, "id", e.ID); err != nil {
		return fmt.Errorf("memory: create endpoint %q: %w", e.ID, err)
	} else if old != nil {
		return serverless.ErrEndpointExists
	}
	return commitEndpoint(tx, e)
}

// Get returns the endpoint.
func (s *Endpoints) Get(_ context.Context, id string) (*serverless.Endpoint, error) {
	return firstEndpoint(s.db.Txn(false), id)
}

func firstEndpoint(tx *memdb.Txn, id string) (*serverless.Endpoint, error) {
	v, err := tx.First(endpointTable, "id", id)
	if err != nil {
		return nil, fmt.Errorf("memory: endpoint %q: %w", id, err)
	}
	if v == nil {
		return nil, serverless.ErrNoEndpoint
	}
	return v.(*serverless.Endpoint).Clone(), nil
}

func commitEndpoint(tx *memdb.Txn, e *serverless.Endpoint) error {
	if err := tx.Insert(endpointTable, e.Clone()); err != nil {
		return fmt.Errorf("memory: write endpoint %q: %w", e.ID, err)
	}
	tx.Commit()
	return nil
}

// List yields the endpoints as they are when it begins.
func (s *Endpoints) List(context.Context) iter.Seq2[*serverless.Endpoint, error] {
	return func(yield func(*serverless.Endpoint, error) bool) {
		it, err := s.db.Txn(false).Get(endpointTable, "id")
		if err != nil {
			yield(nil, fmt.Errorf("memory: list endpoints: %w", err))
			return
		}
		var all []*serverless.Endpoint
		for v := it.Next(); v != nil; v = it.Next() {
			all = append(all, v.(*serverless.Endpoint).Clone())
		}
		slices.SortFunc(all, func(a, b *serverless.Endpoint) int {
			return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
		})
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Update stores what fn leaves.
func (s *Endpoints) Update(_ context.Context, id string, fn func(*serverless.Endpoint) error) (*serverless.Endpoint, error) {
	tx := s.db.Txn(true)
	defer tx.Abort()
	e, err := firstEndpoint(tx, id)
	if err != nil {
		return nil, err
	}
	if err := fn(e); err != nil {
		return nil, err
	}
	return e, commitEndpoint(tx, e)
}

// Delete removes the endpoint.
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
	return nil
}

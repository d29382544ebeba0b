package memory

import (
	"fmt"
	"slices"

	"github.com/hashicorp/go-memdb"

	"github.com/podyard/podyard/internal/records"
	"github.com/podyard/podyard/ratelimit/budget"
)

// An owned is a table of records that belong to users. Records are copied on the way in and
// out, so that a stored record is never shared or changed.
type owned[T any] struct {
	budget.Tally
	records.Kind[T]

	db *memdb.MemDB
}

// An ownedRow is a row of the table.
type ownedRow[T any] struct {
	ID    string
	Owner string
	Value *T
}

const ownedTable = "owned"

func newOwned[T any](k records.Kind[T]) *owned[T] {
	db, err := memdb.NewMemDB(&memdb.DBSchema{Tables: map[string]*memdb.TableSchema{
		ownedTable: {Name: ownedTable, Indexes: map[string]*memdb.IndexSchema{
			"id":    {Name: "id", Unique: true, Indexer: &memdb.StringFieldIndex{Field: "ID"}},
			"owner": {Name: "owner", Indexer: &memdb.StringFieldIndex{Field: "Owner"}, AllowMissing: true},
		}},
	}})
	if err != nil {
		panic(fmt.Sprintf("memory: schema of a table with owners: %v", err)) // a constant
	}
	return &owned[T]{Kind: k, db: db}
}

func (s *owned[T]) create(v T) error {
	id := s.ID(&v)
	txn := s.db.Txn(true)
	defer txn.Abort()
	old, err := txn.First(ownedTable, "id", id)
	if err != nil {
		return fmt.Errorf("memory: look up %q: %w", id, err)
	}
	if old != nil {
		return s.Exists
	}
	if err := s.Move(budget.Holding{}, s.Holding(&v)); err != nil {
		return err
	}
	if err := txn.Insert(ownedTable, &ownedRow[T]{id, s.Owner(&v), s.Clone(&v)}); err != nil {
		return fmt.Errorf("memory: insert %q: %w", id, err)
	}
	txn.Commit()
	return nil
}

func (s *owned[T]) find(txn *memdb.Txn, id string) (*ownedRow[T], error) {
	v, err := txn.First(ownedTable, "id", id)
	if err != nil {
		return nil, fmt.Errorf("memory: look up %q: %w", id, err)
	}
	if v == nil {
		return nil, s.NotFound
	}
	return v.(*ownedRow[T]), nil
}

func (s *owned[T]) get(id string) (*T, error) {
	row, err := s.find(s.db.Txn(false), id)
	if err != nil {
		return nil, err
	}
	return s.Clone(row.Value), nil
}

// value returns what v points to, for a store whose records are values.
func value[T any](v *T, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return *v, nil
}

// list returns the records of owner, in order.
func (s *owned[T]) list(owner string) ([]T, error) {
	return s.collect(func(*T) bool { return true }, "owner", owner)
}

// all returns the records that keep selects, in order.
func (s *owned[T]) all(keep func(*T) bool) ([]T, error) { return s.collect(keep, "id") }

func (s *owned[T]) collect(keep func(*T) bool, index string, args ...any) (list []T, err error) {
	it, err := s.db.Txn(false).Get(ownedTable, index, args...)
	if err != nil {
		return nil, fmt.Errorf("memory: list: %w", err)
	}
	for v := it.Next(); v != nil; v = it.Next() {
		if row := v.(*ownedRow[T]); keep(row.Value) {
			list = append(list, s.listed(row.Value))
		}
	}
	slices.SortFunc(list, s.Order)
	return list, nil
}

// listed returns what lists have of a record.
func (s *owned[T]) listed(v *T) T {
	if s.Listed != nil {
		part := s.Listed(*v)
		v = &part
	}
	return *s.Clone(v)
}

func (s *owned[T]) update(id string, fn func(*T) error) (*T, error) {
	txn := s.db.Txn(true)
	defer txn.Abort()
	row, err := s.find(txn, id)
	if err != nil {
		return nil, err
	}
	changed := s.Clone(row.Value)
	if err := fn(changed); err != nil {
		return nil, err
	}
	if err := s.Move(s.Holding(row.Value), s.Holding(changed)); err != nil {
		return nil, err
	}
	if err := txn.Insert(ownedTable, &ownedRow[T]{row.ID, row.Owner, s.Clone(changed)}); err != nil {
		return nil, fmt.Errorf("memory: update %q: %w", id, err)
	}
	txn.Commit()
	return changed, nil
}

func (s *owned[T]) delete(id string) error {
	txn := s.db.Txn(true)
	defer txn.Abort()
	row, err := s.find(txn, id)
	if err != nil {
		return err
	}
	if err := txn.Delete(ownedTable, row); err != nil {
		return fmt.Errorf("memory: delete %q: %w", id, err)
	}
	txn.Commit()
	return s.Move(s.Holding(row.Value), budget.Holding{})
}

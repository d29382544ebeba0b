package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/go-memdb"

	"github.com/podyard/podyard/registries"
)

// Registries is a registries.Store. It is safe for concurrent use.
type Registries struct {
	db *memdb.MemDB
}

var _ registries.Store = (*Registries)(nil)

// registryRecord is what the tables hold: never handed out, never changed.
type registryRecord struct {
	ID         string
	Owner      string
	Registry   registries.Registry
	Credential registries.Credential
}

const registryTable = "registry"

// NewRegistries returns an empty store.
func NewRegistries() *Registries {
	db, err := memdb.NewMemDB(&memdb.DBSchema{Tables: map[string]*memdb.TableSchema{
		registryTable: {
			Name: registryTable,
			Indexes: map[string]*memdb.IndexSchema{
				"id":    {Name: "id", Unique: true, Indexer: &memdb.StringFieldIndex{Field: "ID"}},
				"owner": {Name: "owner", Indexer: &memdb.StringFieldIndex{Field: "Owner"}, AllowMissing: true},
			},
		},
	}})
	if err != nil {
		panic(fmt.Sprintf("memory: schema of registries: %v", err)) // a constant
	}
	return &Registries{db: db}
}

// Create implements registries.Store.
func (s *Registries) Create(_ context.Context, r registries.Registry, c registries.Credential) error {
	txn := s.db.Txn(true)
	defer txn.Abort()
	old, err := txn.First(registryTable, "id", r.ID)
	if err != nil {
		return fmt.Errorf("memory: look up registry %q: %w", r.ID, err)
	}
	if old != nil {
		return registries.ErrExists
	}
	if err := txn.Insert(registryTable, &registryRecord{r.ID, r.Owner, r, c}); err != nil {
		return fmt.Errorf("memory: insert registry %q: %w", r.ID, err)
	}
	txn.Commit()
	return nil
}

// Get implements registries.Store.
func (s *Registries) Get(_ context.Context, id string) (registries.Registry, registries.Credential, error) {
	rec, err := findRegistry(s.db.Txn(false), id)
	if err != nil {
		return registries.Registry{}, registries.Credential{}, err
	}
	return rec.Registry, rec.Credential, nil
}

// List implements registries.Store.
func (s *Registries) List(_ context.Context, owner string) ([]registries.Registry, error) {
	it, err := s.db.Txn(false).Get(registryTable, "owner", owner)
	if err != nil {
		return nil, fmt.Errorf("memory: list registries: %w", err)
	}
	var list []registries.Registry
	for v := it.Next(); v != nil; v = it.Next() {
		list = append(list, v.(*registryRecord).Registry)
	}
	slices.SortFunc(list, func(a, b registries.Registry) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

// Delete implements registries.Store.
func (s *Registries) Delete(_ context.Context, id string) error {
	txn := s.db.Txn(true)
	defer txn.Abort()
	rec, err := findRegistry(txn, id)
	if err != nil {
		return err
	}
	if err := txn.Delete(registryTable, rec); err != nil {
		return fmt.Errorf("memory: delete registry %q: %w", id, err)
	}
	txn.Commit()
	return nil
}

func findRegistry(txn *memdb.Txn, id string) (*registryRecord, error) {
	v, err := txn.First(registryTable, "id", id)
	if err != nil {
		return nil, fmt.Errorf("memory: look up registry %q: %w", id, err)
	}
	if v == nil {
		return nil, registries.ErrNotFound
	}
	return v.(*registryRecord), nil
}

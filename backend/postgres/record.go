package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/internal/records"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/ratelimit/budget"
)

// A recordTable stores records of one kind, one in each row: its id, its owner, the record as JSON,
// its secret, and a version that counts its changes.
type recordTable[T any] struct {
	records.Kind[T]

	s     *Store
	table string // in the schema podyard

	// column is another column that lists select by. Empty: none.
	column string
	value  func(*T) any
	// hide takes the secret out of a record, and show puts it back. Nil: there is none.
	hide func(v T) (plain T, secret []byte, err error)
	show func(v *T, secret []byte) error
	// plain says that the secret is none: it is a part that lists do not read.
	plain bool
	// claims is the part of a record that counts in the ledger. Nil: none.
	claims func(*T) claimList
	// last has the records of the last list of all. Nil: every list decodes all of its records.
	last *atomic.Pointer[map[string]decoded[T]]
	// sized says that records take bytes of a budget. The others take one of one budget.
	sized bool
}

// A row is a record as it is stored.
type row struct {
	version int64
	data    []byte
	secret  []byte // sealed; nil: none
}

func (r *recordTable[T]) encode(v *T) (out row, err error) {
	plain := *v
	var secret []byte
	if r.hide != nil {
		if plain, secret, err = r.hide(*v); err != nil {
			return out, err
		}
	}
	if out.data, err = json.Marshal(&plain); err != nil {
		return out, fmt.Errorf("postgres: encode %s: %w", r.what(r.ID(v)), err)
	}
	switch {
	case r.plain:
		out.secret = secret
	case secret != nil:
		out.secret, err = r.s.seals.seal(sealName(r.table, []byte(r.ID(v))), secret)
	}
	return out, err
}

func (r *recordTable[T]) decode(id string, in row) (v T, err error) {
	if err := json.Unmarshal(in.data, &v); err != nil {
		return v, fmt.Errorf("postgres: decode %s: %w", r.what(id), err)
	}
	if in.secret == nil {
		return v, nil
	}
	secret := in.secret
	if !r.plain {
		secret, err = r.s.seals.open(sealName(r.table, []byte(id)), in.secret)
	}
	if err == nil {
		err = r.show(&v, secret)
	}
	if err != nil {
		return v, fmt.Errorf("postgres: the secret of %s: %w", r.what(id), err)
	}
	return v, nil
}

func (r *recordTable[T]) what(id string) string { return fmt.Sprintf("%q of %s", id, r.table) }

// columns are the columns that are written, with the values of a record.
func (r *recordTable[T]) columns(v *T, as row) (names []string, args []any) {
	names = []string{"id", "owner", "data", "secret"}
	args = []any{[]byte(r.ID(v)), []byte(r.Owner(v)), as.data, as.secret}
	if r.column != "" {
		names, args = append(names, r.column), append(args, r.value(v))
	}
	return names, args
}

// create adds a record, and those of an Idempotency-Key in keys.
func (r *recordTable[T]) create(ctx context.Context, v T, keys ...idempotency.Record) error {
	var claims claimList
	if r.claims != nil {
		claims = r.claims(&v)
	}
	return r.createAll(ctx, []*T{&v}, r.holds(&v), claims, keys...)
}

// createAll adds records of one owner in one transaction: held and claims are those of all.
func (r *recordTable[T]) createAll(ctx context.Context, list []*T, held budget.Holding, claims claimList, keys ...idempotency.Record) error {
	inserts := make([]insert, len(list))
	for i, v := range list {
		var err error
		if inserts[i], err = r.insert(v); err != nil {
			return err
		}
	}
	err := r.s.tx(ctx, func(tx pgx.Tx) error {
		if err := r.within(ctx, tx, budget.Holding{}, held); err != nil {
			return err
		}
		if err := addKeys(ctx, tx, keys); err != nil {
			return err
		}
		for _, in := range inserts {
			tag, err := tx.Exec(ctx, in.sql, in.args...)
			if err == nil && tag.RowsAffected() == 0 {
				err = r.Exists
			}
			if err != nil {
				return err
			}
		}
		return claim(ctx, tx, nil, claims)
	})
	if err == nil {
		r.s.sweepKeys(ctx, keys)
	}
	return err
}

// An insert is the statement that adds a record.
type insert struct {
	sql  string
	args []any
}

func (r *recordTable[T]) insert(v *T) (insert, error) {
	as, err := r.encode(v)
	if err != nil {
		return insert{}, err
	}
	names, args := r.columns(v, as)
	places := make([]string, len(names))
	for i := range places {
		places[i] = fmt.Sprintf("$%d", i+1)
	}
	sql := fmt.Sprintf(`INSERT INTO podyard.%s (%s) VALUES (%s) ON CONFLICT (id) DO NOTHING`, r.table, strings.Join(names, ", "), strings.Join(places, ", "))
	return insert{sql, args}, nil
}

// row returns the row of a record.
func (r *recordTable[T]) row(ctx context.Context, id string) (got row, err error) {
	err = r.s.read(ctx, func(c *pgxpool.Conn) error {
		return c.QueryRow(ctx, `SELECT version, data, secret FROM podyard.`+r.table+` WHERE id = $1`, []byte(id)).Scan(&got.version, &got.data, &got.secret)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = r.NotFound
	}
	return got, err
}

func (r *recordTable[T]) get(ctx context.Context, id string) (v T, err error) {
	got, err := r.row(ctx, id)
	if err != nil {
		return v, err
	}
	return r.decode(id, got)
}

// list returns the records that a condition selects, in order. where may be empty.
func (r *recordTable[T]) list(ctx context.Context, where string, args ...any) (list []T, err error) {
	return r.listAs(ctx, r.decode, where, args...)
}

// listAs is list with a function that decodes rows.
func (r *recordTable[T]) listAs(ctx context.Context, decode func(id string, in row) (T, error), where string, args ...any) (list []T, err error) {
	err = r.s.read(ctx, func(c *pgxpool.Conn) error {
		list = list[:0]
		sealed := "secret"
		if r.Listed != nil { // then no list has it
			sealed = "NULL::bytea"
		}
		rows, err := c.Query(ctx, `SELECT id, version, data, `+sealed+` FROM podyard.`+r.table+` `+where, args...)
		if err != nil {
			return err
		}
		var id []byte
		var got row
		_, err = pgx.ForEachRow(rows, []any{&id, &got.version, &got.data, &got.secret}, func() error {
			v, err := decode(string(id), got)
			list = append(list, v)
			return err
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, r.Order)
	return list, nil
}

func (r *recordTable[T]) of(ctx context.Context, owner string) ([]T, error) {
	return r.list(ctx, `WHERE owner = $1`, []byte(owner))
}

// all returns all records. With last it decodes those only that have changed since the last call.
func (r *recordTable[T]) all(ctx context.Context) ([]T, error) {
	if r.last == nil {
		return r.list(ctx, "")
	}
	var before map[string]decoded[T]
	if p := r.last.Load(); p != nil {
		before = *p
	}
	now := make(map[string]decoded[T], len(before))
	list, err := r.listAs(ctx, func(id string, in row) (T, error) {
		d, ok := before[id]
		if !ok || in.secret != nil || !bytes.Equal(d.from, in.data) {
			v, err := r.decode(id, in)
			if err != nil {
				return v, err
			}
			d = decoded[T]{in.data, v}
		}
		if in.secret == nil {
			now[id] = d
		}
		return *r.Clone(&d.v), nil
	}, "")
	if err == nil {
		r.last.Store(&now)
	}
	return list, err
}

// decoded is a record with the data that it was decoded from.
type decoded[T any] struct {
	from []byte
	v    T
}

// update calls fn with the record and stores what it leaves, unless the record has changed
// meanwhile: then fn is called again, with the new one.
func (r *recordTable[T]) update(ctx context.Context, id string, fn func(*T) error) (v T, err error) {
	for {
		was, err := r.row(ctx, id)
		if err != nil {
			return v, err
		}
		old, err := r.decode(id, was)
		if err != nil {
			return v, err
		}
		if v, err = r.decode(id, was); err != nil {
			return v, err
		}
		if err := fn(&v); err != nil {
			return v, err
		}
		stored, err := r.replace(ctx, was, &old, &v)
		if err != nil || stored {
			return v, err
		}
	}
}

// replace stores a record in the place of a version of it.
func (r *recordTable[T]) replace(ctx context.Context, was row, old, v *T) (stored bool, err error) {
	as, err := r.encode(v)
	if err != nil {
		return false, err
	}
	if was.secret == nil && as.secret == nil && bytes.Equal(was.data, as.data) {
		return true, nil
	}
	names, args := r.columns(v, as)
	for i := range names {
		names[i] = fmt.Sprintf("%s = $%d", names[i], i+1)
	}
	sql := fmt.Sprintf(`UPDATE podyard.%s SET version = version + 1, %s WHERE id = $1 AND version = $%d`, r.table, strings.Join(names[1:], ", "), len(args)+1)
	args = append(args, was.version)
	kept := r.claims == nil || slices.Equal(r.claims(old), r.claims(v))
	if kept && r.holds(old) == r.holds(v) {
		n, err := r.s.exec(ctx, sql, args...)
		return n == 1, err
	}
	err = r.s.tx(ctx, func(tx pgx.Tx) error {
		if err := r.within(ctx, tx, r.holds(old), r.holds(v)); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, sql, args...)
		if stored = tag.RowsAffected() == 1; err != nil || !stored || kept {
			return err
		}
		return claim(ctx, tx, r.claims(old), r.claims(v))
	})
	return stored, err
}

// delete deletes a record without claims.
func (r *recordTable[T]) delete(ctx context.Context, id string) error {
	n, err := r.s.exec(ctx, `DELETE FROM podyard.`+r.table+` WHERE id = $1`, []byte(id))
	if err == nil && n == 0 {
		err = r.NotFound
	}
	return err
}

// deleteIf deletes a record with its claims, if fn is nil or returns nil for it.
func (r *recordTable[T]) deleteIf(ctx context.Context, id string, fn func(*T) error) error {
	return r.s.tx(ctx, func(tx pgx.Tx) error {
		got := row{} // without the secret: a record can be deleted without the key
		err := tx.QueryRow(ctx, `SELECT version, data FROM podyard.`+r.table+` WHERE id = $1 FOR UPDATE`, []byte(id)).Scan(&got.version, &got.data)
		if errors.Is(err, pgx.ErrNoRows) {
			return r.NotFound
		}
		if err != nil {
			return err
		}
		old, err := r.decode(id, got)
		if err != nil {
			return err
		}
		if fn != nil {
			if err := fn(&old); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, `DELETE FROM podyard.`+r.table+` WHERE id = $1`, []byte(id)); err != nil {
			return err
		}
		return claim(ctx, tx, r.claims(&old), nil)
	})
}

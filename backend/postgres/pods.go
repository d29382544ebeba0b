package postgres

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/internal/hub"
	"github.com/podyard/podyard/internal/records"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem/idempotency"
)

// Pods is a pods.PodStore. The environment variables that startSsh and startJupyter add are
// encrypted.
type Pods struct {
	keyFinder
	r   recordTable[pods.Pod]
	hub hub.Hub[string]
}

var _ pods.PodStore = (*Pods)(nil)

// Pods returns the store of pods.
func (s *Store) Pods() *Pods { return &s.pods }

func (p *Pods) init(s *Store) {
	p.keyFinder.s = s
	p.r = recordTable[pods.Pod]{
		Kind: records.Kind[pods.Pod]{
			ID:    func(p *pods.Pod) string { return p.ID },
			Owner: func(p *pods.Pod) string { return p.Owner },
			Order: func(a, b pods.Pod) int {
				return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
			},
			NotFound: pods.ErrNotFound,
			Holding:  (*pods.Pod).Holding,
			Exists:   pods.ErrExists,
		},
		s: s, table: "pods", column: "host",
		value:  func(p *pods.Pod) any { return []byte(p.Placement.Host) },
		hide:   hidePod,
		show:   func(p *pods.Pod, secret []byte) error { return json.Unmarshal(secret, &p.Injected) },
		claims: func(p *pods.Pod) claimList { return p.Placement.Claims }, sized: true,
	}
}

func hidePod(p pods.Pod) (pods.Pod, []byte, error) {
	if len(p.Injected) == 0 {
		return p, nil, nil
	}
	secret, err := json.Marshal(p.Injected)
	p.Injected = nil
	return p, secret, err
}

// Create implements pods.PodStore.
func (p *Pods) Create(ctx context.Context, pod *pods.Pod) error { return p.create(ctx, pod) }

// CreateKeyed implements pods.PodStore.
func (p *Pods) CreateKeyed(ctx context.Context, pod *pods.Pod, r idempotency.Record) error {
	return p.create(ctx, pod, r)
}

func (p *Pods) create(ctx context.Context, pod *pods.Pod, keys ...idempotency.Record) error {
	return p.changed(ctx, pod.ID, p.r.create(ctx, *pod, keys...))
}

// CreateAll implements pods.PodStore.
func (p *Pods) CreateAll(ctx context.Context, list []*pods.Pod, r *idempotency.Record) error {
	var keys []idempotency.Record
	if r != nil {
		keys = append(keys, *r)
	}
	err := p.r.createAll(ctx, list, pods.HoldingOf(list), pods.ClaimsOf(list), keys...)
	for _, pod := range list {
		if err = p.changed(ctx, pod.ID, err); err != nil {
			break
		}
	}
	return err
}

// Get implements pods.PodStore.
func (p *Pods) Get(ctx context.Context, id string) (*pods.Pod, error) {
	return pointer(p.r.get(ctx, id))
}

// List implements pods.PodStore. It yields the pods as they were when it began.
func (p *Pods) List(ctx context.Context, f pods.Filter) iter.Seq2[*pods.Pod, error] {
	return each(ctx, func() ([]pods.Pod, error) {
		return p.r.list(ctx, `WHERE ($1 OR owner = $2) AND ($3 OR host = $4)`, f.Owner == "", []byte(f.Owner), f.Host == "", []byte(f.Host))
	})
}

// each yields a list.
func each[T any](ctx context.Context, list func() ([]T, error)) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		all, err := list()
		for i := range all {
			if err = ctx.Err(); err != nil || !yield(&all[i], nil) {
				break
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// Update implements pods.PodStore.
func (p *Pods) Update(ctx context.Context, id string, fn func(*pods.Pod) error) (*pods.Pod, error) {
	pod, err := pointer(p.r.update(ctx, id, fn))
	return pod, p.changed(ctx, id, err)
}

// pointer is nil with an error.
func pointer[T any](v T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return &v, nil
}

// Delete implements pods.PodStore.
func (p *Pods) Delete(ctx context.Context, id string, fn func(*pods.Pod) error) error {
	return p.changed(ctx, id, p.r.deleteIf(ctx, id, fn))
}

// Reserve implements pods.PodStore.
func (p *Pods) Reserve(ctx context.Context, h pods.Reservation) error {
	data, err := json.Marshal(&h)
	if err != nil {
		return err
	}
	return p.r.s.tx(ctx, func(tx pgx.Tx) error {
		// Without a reservation there is nothing to lock, so an empty one comes first.
		_, err := tx.Exec(ctx, `INSERT INTO podyard.reservations (holder, data) VALUES ($1, '{}') ON CONFLICT (holder) DO NOTHING`, []byte(h.Holder))
		if err != nil {
			return err
		}
		var was []byte
		if err := tx.QueryRow(ctx, `SELECT data FROM podyard.reservations WHERE holder = $1 FOR UPDATE`, []byte(h.Holder)).Scan(&was); err != nil {
			return err
		}
		var old pods.Reservation
		if err := json.Unmarshal(was, &old); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE podyard.reservations SET data = $2 WHERE holder = $1`, []byte(h.Holder), data); err != nil {
			return err
		}
		return claim(ctx, tx, old.Placement.Claims, h.Placement.Claims)
	})
}

// Release implements pods.PodStore.
func (p *Pods) Release(ctx context.Context, holder string) error {
	released := false
	err := p.r.s.tx(ctx, func(tx pgx.Tx) error {
		var was []byte
		err := tx.QueryRow(ctx, `DELETE FROM podyard.reservations WHERE holder = $1 RETURNING data`, []byte(holder)).Scan(&was)
		if released = err == nil; errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		var old pods.Reservation
		if err := json.Unmarshal(was, &old); err != nil {
			return err
		}
		return claim(ctx, tx, old.Placement.Claims, nil)
	})
	if !released {
		return err
	}
	return p.changed(ctx, holder, err)
}

// Reservations implements pods.PodStore. It yields the reservations as they were when it
// began.
func (p *Pods) Reservations(ctx context.Context) iter.Seq2[pods.Reservation, error] {
	return func(yield func(pods.Reservation, error) bool) {
		for h, err := range each(ctx, func() ([]pods.Reservation, error) { return p.reservations(ctx) }) {
			if err != nil {
				yield(pods.Reservation{}, err)
				return
			}
			if !yield(*h, nil) {
				return
			}
		}
	}
}

func (p *Pods) reservations(ctx context.Context) (list []pods.Reservation, err error) {
	err = p.r.s.read(ctx, func(c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, `SELECT data FROM podyard.reservations ORDER BY holder`)
		if err != nil {
			return err
		}
		list, err = decodeRows[pods.Reservation](rows)
		return err
	})
	return list, err
}

// Claimed implements pods.PodStore.
func (p *Pods) Claimed(ctx context.Context, resource string) (units int64, err error) {
	err = p.r.s.read(ctx, func(c *pgxpool.Conn) error {
		return c.QueryRow(ctx, `SELECT units FROM podyard.claims WHERE resource = $1`, []byte(resource)).Scan(&units)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return units, err
}

// podChannel has the ids of pods and the holders of reservations in base64, or nothing: one
// that is too long.
const podChannel = "podyard_pods"

// changed notifies the watchers of this and of other servers after a change, or returns its
// error.
func (p *Pods) changed(ctx context.Context, id string, err error) error {
	if err != nil {
		return err
	}
	payload := base64.StdEncoding.EncodeToString([]byte(id))
	if len(payload) > maxPayload {
		payload = ""
	}
	p.r.s.notify(ctx, podChannel, payload)
	p.hub.Notify([]string{id})
	return nil
}

// Watch implements pods.PodStore. It takes a connection of its own.
func (p *Pods) Watch(ctx context.Context, f func(ids []string)) error {
	return p.r.s.watch(ctx, podChannel, func(ctx context.Context) error { return p.hub.Watch(ctx, f, func() {}) },
		func() { f(nil) }, func(payload string) {
			id, err := base64.StdEncoding.DecodeString(payload)
			if err != nil || len(id) == 0 {
				f(nil)
				return
			}
			f([]string{string(id)})
		})
}

// watch runs own, which watches this server, and listens to others, until ctx or the store
// ends. It calls lost when notifications of others may have been lost.
func (s *Store) watch(ctx context.Context, channel string, own func(context.Context) error, lost func(), f func(payload string)) error {
	watching, cancel := s.untilClosed(ctx)
	defer cancel()
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() { _ = s.listen(watching, channel, lost, f) }) // it ends with the context
	err := own(watching)
	if ctx.Err() == nil {
		return ErrClosed
	}
	return err
}

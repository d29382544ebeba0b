package disk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/podyard/podyard/pods"
)

// A reservationTable contains the reservations. They share a ledger with the claims of pods.
type reservationTable struct {
	table[pods.Reservation]
	claims *ledger
}

func (t *reservationTable) load(e *engine, claims *ledger) error {
	t.claims = claims
	if err := t.table.load(e, keyReservation, decodeJSON[pods.Reservation]); err != nil {
		return err
	}
	for _, r := range t.rows {
		claims.load(r.v.Placement.Claims)
	}
	return nil
}

func (t *reservationTable) publish(old, now *pods.Reservation) {
	t.claims.publish(reservationClaims(old), reservationClaims(now))
}

func reservationClaims(h *pods.Reservation) []pods.Claim {
	if h == nil {
		return nil
	}
	return h.Placement.Claims
}

// Reserve implements pods.PodStore.
func (s *Pods) Reserve(ctx context.Context, h pods.Reservation) error {
	e, err := s.s.admit(ctx, newWork)
	if err != nil {
		return err
	}
	h = h.Clone()
	value, err := json.Marshal(&h)
	if err != nil {
		return fmt.Errorf("disk: encode what %q holds: %w", h.Holder, err)
	}
	t := &e.reservations
	return t.change(ctx, e, h.Holder, func(old *pods.Reservation) (change[pods.Reservation], error) {
		return change[pods.Reservation]{key: textKey(keyReservation, h.Holder), value: value, v: &h}, t.claims.reserve(reservationClaims(old), reservationClaims(&h))
	}, t.publish)
}

// Release implements pods.PodStore.
func (s *Pods) Release(ctx context.Context, holder string) error {
	e, err := s.s.admit(ctx, deletions)
	if err != nil {
		return err
	}
	t := &e.reservations
	err = t.change(ctx, e, holder, func(old *pods.Reservation) (c change[pods.Reservation], err error) {
		if old == nil {
			return c, e.missing(keyReservation, errNotReserved)
		}
		return change[pods.Reservation]{key: textKey(keyReservation, holder)}, nil
	}, t.publish)
	if errors.Is(err, errNotReserved) {
		return nil
	}
	if err == nil {
		s.s.podHub.Notify([]string{holder})
	}
	return err
}

// errNotReserved: there is nothing to release.
var errNotReserved = errors.New("disk: nothing is held")

// Reservations implements pods.PodStore. It yields the reservations as they were when it
// began.
func (s *Pods) Reservations(ctx context.Context) iter.Seq2[pods.Reservation, error] {
	return func(yield func(pods.Reservation, error) bool) {
		e, err := s.s.engine()
		if err != nil {
			yield(pods.Reservation{}, err)
			return
		}
		list := e.reservations.all(func(*pods.Reservation) bool { return true })
		slices.SortFunc(list, func(a, b *pods.Reservation) int { return strings.Compare(a.Holder, b.Holder) })
		for _, h := range list {
			if err := ctx.Err(); err != nil {
				yield(pods.Reservation{}, err)
				return
			}
			if !yield(h.Clone(), nil) {
				return
			}
		}
		if err := e.missing(keyReservation, nil); err != nil {
			yield(pods.Reservation{}, err)
		}
	}
}

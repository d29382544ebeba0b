package memory

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/hashicorp/go-memdb"

	"github.com/podyard/podyard/pods"
)

// Reserve implements pods.PodStore.
func (s *Pods) Reserve(ctx context.Context, h pods.Reservation) error {
	err := s.write(ctx, func(txn *memdb.Txn) error {
		old, err := findReservation(txn, h.Holder)
		if err != nil {
			return err
		}
		var before []pods.Claim
		if old != nil {
			before = old.Placement.Claims
		}
		if err := podClaim(txn, before, h.Placement.Claims); err != nil {
			return err
		}
		h = h.Clone()
		return txn.Insert(podReservationTable, &h)
	})
	if err != nil {
		return reservationError("reserve for", h.Holder, err)
	}
	return nil
}

// Release implements pods.PodStore.
func (s *Pods) Release(ctx context.Context, holder string) error {
	released := false
	err := s.write(ctx, func(txn *memdb.Txn) error {
		old, err := findReservation(txn, holder)
		if old == nil || err != nil {
			return err
		}
		if err := podClaim(txn, old.Placement.Claims, nil); err != nil {
			return err
		}
		released = true
		return txn.Delete(podReservationTable, old)
	})
	if err != nil {
		return reservationError("release the reservation of", holder, err)
	}
	if released {
		s.notify(holder)
	}
	return nil
}

// Reservations implements pods.PodStore. It yields the reservations as they were when the
// iteration began.
func (s *Pods) Reservations(ctx context.Context) iter.Seq2[pods.Reservation, error] {
	return func(yield func(pods.Reservation, error) bool) {
		it, err := s.db.Txn(false).Get(podReservationTable, "id_prefix", "")
		if err != nil {
			yield(pods.Reservation{}, fmt.Errorf("memory: list reservations: %w", err))
			return
		}
		for v := it.Next(); v != nil; v = it.Next() {
			if err := ctx.Err(); err != nil {
				yield(pods.Reservation{}, err)
				return
			}
			if !yield(v.(*pods.Reservation).Clone(), nil) {
				return
			}
		}
	}
}

// findReservation returns the reservation of a holder, or nil.
func findReservation(txn *memdb.Txn, holder string) (*pods.Reservation, error) {
	v, err := txn.First(podReservationTable, "id", holder)
	if v == nil || err != nil {
		return nil, err
	}
	return v.(*pods.Reservation), nil
}

func reservationError(what, holder string, err error) error {
	if errors.Is(err, pods.ErrNoCapacity) {
		return err
	}
	return fmt.Errorf("memory: %s %q: %w", what, holder, err)
}

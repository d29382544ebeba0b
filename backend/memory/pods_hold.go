package memory

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/hashicorp/go-memdb"

	"github.com/podyard/podyard/pods"
)

// Hold implements pods.Store.
func (s *Pods) Hold(ctx context.Context, h pods.Hold) error {
	err := s.write(ctx, func(txn *memdb.Txn) error {
		old, err := podHeld(txn, h.Holder)
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
		return txn.Insert(podHoldTable, &h)
	})
	if err != nil {
		return holdError("hold for", h.Holder, err)
	}
	return nil
}

// Release implements pods.Store.
func (s *Pods) Release(ctx context.Context, holder string) error {
	released := false
	err := s.write(ctx, func(txn *memdb.Txn) error {
		old, err := podHeld(txn, holder)
		if old == nil || err != nil {
			return err
		}
		if err := podClaim(txn, old.Placement.Claims, nil); err != nil {
			return err
		}
		released = true
		return txn.Delete(podHoldTable, old)
	})
	if err != nil {
		return holdError("release what is held for", holder, err)
	}
	if released {
		s.tell(holder)
	}
	return nil
}

// Holds implements pods.Store. It yields those of the instant at which it began.
func (s *Pods) Holds(ctx context.Context) iter.Seq2[pods.Hold, error] {
	return func(yield func(pods.Hold, error) bool) {
		it, err := s.db.Txn(false).Get(podHoldTable, "id_prefix", "")
		if err != nil {
			yield(pods.Hold{}, fmt.Errorf("memory: list what is held: %w", err))
			return
		}
		for v := it.Next(); v != nil; v = it.Next() {
			if err := ctx.Err(); err != nil {
				yield(pods.Hold{}, err)
				return
			}
			if !yield(v.(*pods.Hold).Clone(), nil) {
				return
			}
		}
	}
}

// podHeld is what a holder has; nil for nothing.
func podHeld(txn *memdb.Txn, holder string) (*pods.Hold, error) {
	v, err := txn.First(podHoldTable, "id", holder)
	if v == nil || err != nil {
		return nil, err
	}
	return v.(*pods.Hold), nil
}

func holdError(what, holder string, err error) error {
	if errors.Is(err, pods.ErrNoRoom) {
		return err
	}
	return fmt.Errorf("memory: %s %q: %w", what, holder, err)
}

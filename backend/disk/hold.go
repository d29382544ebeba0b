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

// A holdTable is what is held, in the same ledger as the claims of pods.
type holdTable struct {
	table[pods.Hold]
	claims *ledger
}

func (t *holdTable) load(e *engine, claims *ledger) error {
	t.claims = claims
	if err := t.table.load(e, keyHold, decodeJSON[pods.Hold]); err != nil {
		return err
	}
	for _, r := range t.rows {
		claims.load(r.v.Placement.Claims)
	}
	return nil
}

func (t *holdTable) publish(old, now *pods.Hold) {
	t.claims.publish(heldClaims(old), heldClaims(now))
}

func heldClaims(h *pods.Hold) []pods.Claim {
	if h == nil {
		return nil
	}
	return h.Placement.Claims
}

// Hold implements pods.Store.
func (s *Pods) Hold(ctx context.Context, h pods.Hold) error {
	e, err := s.s.admit(ctx, newWork)
	if err != nil {
		return err
	}
	h = h.Clone()
	value, err := json.Marshal(&h)
	if err != nil {
		return fmt.Errorf("disk: encode what %q holds: %w", h.Holder, err)
	}
	t := &e.holds
	return t.change(ctx, e, h.Holder, func(old *pods.Hold) (change[pods.Hold], error) {
		return change[pods.Hold]{textKey(keyHold, h.Holder), value, &h}, t.claims.reserve(heldClaims(old), heldClaims(&h))
	}, t.publish)
}

// Release implements pods.Store.
func (s *Pods) Release(ctx context.Context, holder string) error {
	e, err := s.s.admit(ctx, deletions)
	if err != nil {
		return err
	}
	t := &e.holds
	err = t.change(ctx, e, holder, func(old *pods.Hold) (c change[pods.Hold], err error) {
		if old == nil {
			return c, errNotHeld
		}
		return change[pods.Hold]{key: textKey(keyHold, holder)}, nil
	}, t.publish)
	if errors.Is(err, errNotHeld) {
		return nil
	}
	if err == nil {
		s.s.podHub.tell([]string{holder})
	}
	return err
}

// errNotHeld: there is nothing to release, and nothing to write.
var errNotHeld = errors.New("disk: nothing is held")

// Holds implements pods.Store. It yields those of the instant at which it began.
func (s *Pods) Holds(ctx context.Context) iter.Seq2[pods.Hold, error] {
	return func(yield func(pods.Hold, error) bool) {
		e, err := s.s.engine()
		if err != nil {
			yield(pods.Hold{}, err)
			return
		}
		list := e.holds.all(func(*pods.Hold) bool { return true })
		slices.SortFunc(list, func(a, b *pods.Hold) int { return strings.Compare(a.Holder, b.Holder) })
		for _, h := range list {
			if err := ctx.Err(); err != nil {
				yield(pods.Hold{}, err)
				return
			}
			if !yield(h.Clone(), nil) {
				return
			}
		}
	}
}

package batches

import (
	"context"
	"fmt"
	"time"
)

// The delivery of the webhook of a batch: up to noticeTries attempts, noticeDelay apart. An
// attempt takes less than noticeLease; one that was cut short by the end of its server is made
// again after that time.
const (
	noticeTries = 3
	noticeDelay = 10 * time.Second
	noticeLease = time.Minute
)

// notify begins an attempt. It is recorded before it is made, so that two servers do not make
// it at once.
func (s *Service) notify(ctx context.Context, b Batch, now time.Time) (Batch, error) {
	if s.o.Send == nil {
		return s.postpone(ctx, &b, now.Add(time.Hour))
	}
	place, wait, err := s.o.Place(&b)
	switch {
	case err != nil:
		s.o.Logger.WarnContext(ctx, "the webhook of a batch is not sent", "batch", b.ID, "err", err)
		return s.update(ctx, b.ID, func(b *Batch, now time.Time) error { b.Notice.failed(b.Notice.Tries+1, now); return nil })
	case place == nil:
		return s.postpone(ctx, &b, now.Add(wait))
	}
	mine := false
	b, err = s.update(ctx, b.ID, func(b *Batch, now time.Time) error {
		mine = b.unsent() && !b.Notice.Next.After(now) && b.Notice.Tries < noticeTries
		switch {
		case mine:
			b.Notice.Tries++
			b.Notice.Next = now.Add(noticeLease)
		case b.Notice.Tries >= noticeTries:
			b.Notice.Settled = true // the last attempt was cut short
		}
		return nil
	})
	if err != nil || !mine {
		place(ctx, errNotMade)
		return b, err
	}
	s.sending.Go(func() { s.send(ctx, b.Clone(), place) })
	return b, nil
}

func (s *Service) postpone(ctx context.Context, b *Batch, until time.Time) (Batch, error) {
	return s.update(ctx, b.ID, func(b *Batch, _ time.Time) error { b.Notice.Next = until; return nil })
}

// errNotMade is the outcome of an attempt that is not made after all.
var errNotMade = fmt.Errorf("batches: %w", context.Canceled)

// send makes an attempt and records it. An attempt that the end of ctx cut short does not count.
func (s *Service) send(ctx context.Context, b Batch, done func(context.Context, error)) {
	err := s.o.Send(ctx, "msg_"+b.ID, b.Webhook, b.summary(0))
	done(ctx, err)
	tries, cut := b.Notice.Tries, err != nil && ctx.Err() != nil
	defer s.lock(b.ID)() // the step that began the attempt has planned the batch: what is planned here must be later
	b, saved := s.update(context.WithoutCancel(ctx), b.ID, func(b *Batch, now time.Time) error {
		switch {
		case b.Notice.Tries != tries:
		case cut:
			b.Notice.Tries--
			b.Notice.Next = now
		case err == nil:
			b.Notice.Settled = true
		default:
			b.Notice.failed(tries, now)
		}
		return nil
	})
	if ignore(saved, ErrNotFound) != nil {
		s.o.Logger.Error("recording a delivery failed", "batch", b.ID, "err", saved)
	}
	if saved == nil {
		s.replan(&b, b.due())
	}
}

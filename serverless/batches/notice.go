package batches

import (
	"context"
	"time"
)

// The delivery of the webhook of a batch: up to noticeTries attempts, noticeDelay apart. An
// attempt takes less than noticeLease; one that was cut short by the end of its server is made
// again after that time.
const (
	noticeTries = 3
	noticeDelay = 10 * time.Second
	noticeLease = time.Minute
	busyDelay   = 2 * time.Second
)

// notify begins an attempt. It is recorded before it is made, so that two servers do not make
// it at once.
func (s *Service) notify(ctx context.Context, b Batch, now time.Time) (Batch, error) {
	if s.o.Send == nil {
		return s.postpone(ctx, &b, now.Add(time.Hour))
	}
	select {
	case s.senders <- struct{}{}:
	default:
		return s.postpone(ctx, &b, now.Add(busyDelay))
	}
	mine := false
	b, err := s.update(ctx, b.ID, func(b *Batch, now time.Time) error {
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
		<-s.senders
		return b, err
	}
	s.sending.Go(func() {
		defer func() { <-s.senders }()
		s.send(ctx, b.Clone())
	})
	return b, nil
}

func (s *Service) postpone(ctx context.Context, b *Batch, until time.Time) (Batch, error) {
	return s.update(ctx, b.ID, func(b *Batch, _ time.Time) error { b.Notice.Next = until; return nil })
}

// send makes an attempt and records it. An attempt that the end of ctx cut short does not count.
func (s *Service) send(ctx context.Context, b Batch) {
	err := s.o.Send(ctx, "msg_"+b.ID, b.Webhook, b.summary(0))
	tries, cut := b.Notice.Tries, err != nil && ctx.Err() != nil
	defer s.lock(b.ID)() // the step that began the attempt has planned the batch: what is planned here must be later
	b, saved := s.update(context.WithoutCancel(ctx), b.ID, func(b *Batch, now time.Time) error {
		switch {
		case b.Notice.Tries != tries:
		case cut:
			b.Notice.Tries--
			b.Notice.Next = now
		case err == nil, tries >= noticeTries:
			b.Notice.Settled = true
		default:
			b.Notice.Next = now.Add(noticeDelay)
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

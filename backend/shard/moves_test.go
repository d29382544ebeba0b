package shard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/shard"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/queue"
)

// A load is submitters, workers and moves at several servers.
type load struct {
	*testing.T
	seed    uint64
	servers []*shard.Queue

	mu       sync.Mutex
	added    map[queue.Ref]int // acknowledged submits
	claimed  map[queue.Ref]int
	finished map[queue.Ref]int
	moves    int
}

var loaded = []string{"x", "y", "z"}

// A submit is repeated at another server at the same time: one of the two succeeds.
func (l *load) submitter(ctx context.Context, n int) {
	draw := rand.New(rand.NewPCG(l.seed, uint64(n)))
	for i := range 150 {
		ref := queue.Ref{Endpoint: loaded[draw.IntN(len(loaded))], ID: queue.JobID(fmt.Sprint(n, "-", i))}
		first := draw.IntN(len(l.servers))
		twins := 1 + draw.IntN(2)
		var both sync.WaitGroup
		for twin := range twins {
			both.Go(func() { l.submit(ctx, l.servers[(first+twin)%len(l.servers)], ref) })
		}
		both.Wait()
		time.Sleep(time.Duration(draw.IntN(200)) * time.Millisecond)
	}
}

func (l *load) submit(ctx context.Context, q *shard.Queue, ref queue.Ref) {
	err := q.Enqueue(ctx, []queue.Job{job(ref.Endpoint, string(ref.ID), time.Now())})
	switch {
	case errors.Is(err, queue.ErrExists):
		return
	case err != nil:
		l.Errorf("seed %d: Enqueue of %v = %v", l.seed, ref, err)
		return
	}
	l.mu.Lock()
	l.added[ref]++
	l.mu.Unlock()
	if _, err := l.servers[int(ref.ID[0])%len(l.servers)].Get(ctx, queue.At(time.Now()), ref); err != nil {
		l.Errorf("seed %d: Get of %v at a server after its submit = %v", l.seed, ref, err)
	}
}

func (l *load) worker(ctx context.Context, n int) {
	draw := rand.New(rand.NewPCG(l.seed, 1000+uint64(n)))
	for ctx.Err() == nil {
		q := l.servers[draw.IntN(len(l.servers))]
		jobs := claim(l.T, q, loaded[draw.IntN(len(loaded))], 1+draw.IntN(3), nil)
		for _, j := range jobs {
			l.mu.Lock()
			l.claimed[j.Ref]++
			l.mu.Unlock()
		}
		time.Sleep(time.Duration(draw.IntN(300)) * time.Millisecond)
		for _, j := range jobs {
			finish(l.T, l.servers[draw.IntN(len(l.servers))], j)
			l.mu.Lock()
			l.finished[j.Ref]++
			l.mu.Unlock()
		}
	}
}

// mover moves endpoints, and sometimes gives up, or moves one at two servers at once.
func (l *load) mover(ctx context.Context, n int) {
	draw := rand.New(rand.NewPCG(l.seed, 2000+uint64(n)))
	for ctx.Err() == nil {
		patience := time.Duration(1+draw.IntN(3000)) * time.Millisecond
		limited, cancel := context.WithTimeout(ctx, patience)
		err := l.servers[draw.IntN(len(l.servers))].Move(limited, loaded[draw.IntN(len(loaded))], name(draw.IntN(3)))
		cancel()
		switch {
		case err == nil:
			l.mu.Lock()
			l.moves++
			l.mu.Unlock()
		case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) && problem.KindOf(err) != problem.Conflict && problem.KindOf(err) != problem.Unavailable:
			l.Errorf("seed %d: Move = %v", l.seed, err)
		}
		time.Sleep(time.Duration(draw.IntN(2000)) * time.Millisecond)
	}
}

func (l *load) check() {
	for ref, n := range l.added {
		if n != 1 || l.claimed[ref] != 1 || l.finished[ref] != 1 {
			l.Errorf("seed %d: %v was added %d times, claimed %d times and finished %d times, want once each", l.seed, ref, n, l.claimed[ref], l.finished[ref])
		}
	}
	if len(l.claimed) != len(l.added) || l.moves < len(loaded) {
		l.Errorf("seed %d: %d jobs were claimed of %d, in %d moves", l.seed, len(l.claimed), len(l.added), l.moves)
	}
}

func TestMovesUnderLoadLoseNothingAndGiveNothingTwice(t *testing.T) {
	seeds, rounds := uint64(1), 1
	if suite.Long() {
		seeds, rounds = 4, 3
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(3)
			l := &load{T: t, seed: seed, added: map[queue.Ref]int{}, claimed: map[queue.Ref]int{}, finished: map[queue.Ref]int{}}
			ctx, stop := context.WithCancel(t.Context())
			var servers, users, others sync.WaitGroup
			for i := range 3 {
				q := w.open(t, fmt.Sprint("server", i))
				l.servers = append(l.servers, q)
				servers.Go(func() { _ = q.Run(ctx) })
			}
			for round := range rounds {
				working, done := context.WithCancel(ctx)
				for i := range 4 {
					users.Go(func() { l.submitter(ctx, 10*round+i) })
					others.Go(func() { l.worker(working, 10*round+i) })
				}
				others.Go(func() { l.mover(working, 2*round) })
				others.Go(func() { l.mover(working, 2*round+1) })
				users.Wait()
				time.Sleep(time.Minute)
				done()
				others.Wait()
				for range 25 * (rounds - 1) { // until drains have ended
					time.Sleep(30 * time.Minute)
					_, _ = l.servers[round].Expire(ctx, queue.At(time.Now()), 1000)
				}
			}
			l.check()
			completed := int64(0)
			for _, endpoint := range loaded {
				if p := where(t, l.servers[0], endpoint); rounds > 1 && (p.From != "" || p.To != "") {
					t.Errorf("seed %d: %s is still %+v", seed, endpoint, p)
				}
				completed += stats(t, l.servers[1], endpoint).Completed
			}
			if completed != int64(len(l.added)) {
				t.Errorf("seed %d: Completed = %d, want %d", seed, completed, len(l.added))
			}
			stop()
			servers.Wait()
		})
	}
}

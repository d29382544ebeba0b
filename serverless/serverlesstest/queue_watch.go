package serverlesstest

import (
	"context"
	"errors"
	"time"

	"github.com/podyard/podyard/serverless"
)

const (
	patience = 30 * time.Second      // how long the suite waits for a hint
	tick     = 10 * time.Millisecond // how often it looks again
)

// hints are what a Watch told.
type hints struct {
	k    *kit
	told chan serverless.Event
	err  chan error
	stop context.CancelFunc
}

// watch starts a Watch and returns when it is known to watch: it was told of something.
func (k *kit) watch() *hints {
	k.Helper()
	ctx, cancel := context.WithCancel(k.Context())
	h := &hints{k: k, told: make(chan serverless.Event, 10_000), err: make(chan error, 1), stop: cancel}
	go func() {
		h.err <- k.q.Watch(ctx, func(evs []serverless.Event) {
			for _, e := range evs {
				h.told <- e
			}
		})
	}()
	k.Cleanup(cancel)
	for waited := time.Duration(0); waited < patience; waited += tick {
		k.add(on("probe"))
		again := time.NewTimer(tick)
		select {
		case <-h.told:
			again.Stop()
			return h
		case <-again.C:
		}
	}
	k.Fatalf("waited %s for Watch to tell of anything", patience)
	return nil
}

// until waits for a hint; a gap stands for any.
func (h *hints) until(what string, want serverless.Event) {
	h.k.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case e := <-h.told:
			if e.Kind == serverless.EventReady {
				e.ID = "" // it is a hint at the endpoint
			}
			if e == want || e.Kind == serverless.EventGap {
				return
			}
		case <-late.C:
			h.k.Fatalf("waited %s for %+v after %s", patience, want, what)
		}
	}
}

func (h *hints) ready(what string) {
	h.k.Helper()
	h.until(what, serverless.Event{Kind: serverless.EventReady, Ref: serverless.Ref{Endpoint: echo}})
}

func (h *hints) done(what string, j serverless.Job) {
	h.k.Helper()
	h.until(what, serverless.Event{Kind: serverless.EventDone, Ref: j.Ref})
}

func (h *hints) stopped(what string, j serverless.Job) {
	h.k.Helper()
	h.until(what, serverless.Event{Kind: serverless.EventStop, Ref: j.Ref, Worker: j.Worker})
}

func watchCases() []QueueCase {
	return []QueueCase{
		rule("WatchTellsThatAJobIsReady",
			"Watch tells that an endpoint has a job to claim: after submit, release, loss, retry",
			func(k *kit) {
				h := k.watch()
				j := k.add()
				h.ready("Enqueue")
				k.must(as(k.take("w"), serverless.OpRelease))
				h.ready("OpRelease")
				k.take("w")
				k.now += lease
				k.expire()
				h.ready("the end of a lease")
				k.must(failed(k.take("x"), "no"))
				k.must(user(j, serverless.OpRetry))
				h.ready("OpRetry")
			}),
		rule("WatchTellsThatAJobIsDone",
			"Watch tells that a job has ended or is gone: after a report, cancel, purge, timeout, ttl",
			func(k *kit) {
				h := k.watch()
				j := k.run()
				k.must(done(j, "1"))
				h.done("OpFinish", j)
				j = k.add()
				k.must(user(j, serverless.OpCancel))
				h.done("OpCancel", j)
				j = k.add()
				k.purge(serverless.PurgeQuery{Endpoint: echo, UpTo: 1<<63 - 1, Limit: 10})
				h.done("Purge", j)
				j = k.run(func(j *serverless.Job) { j.ExecTimeout = 5000 })
				k.wait(5 * time.Second)
				k.expire()
				h.done("the execution timeout", j)
				j = k.add(func(j *serverless.Job) { j.Expires = k.now + 1000 })
				k.wait(time.Second)
				k.expire()
				h.done("the ttl", j)
			}),
		rule("WatchTellsWhoeverFindsItGone",
			"a job past its ttl that an op or a claim finds first is told of as well",
			func(k *kit) {
				h := k.watch()
				for _, find := range []func(j serverless.Job){
					func(j serverless.Job) { k.refuse(user(j, serverless.OpCancel), serverless.ErrNotFound) },
					func(serverless.Job) { k.claim(k.slot("w", 1)) },
					func(serverless.Job) { k.purge(serverless.PurgeQuery{Endpoint: echo, UpTo: 1<<63 - 1, Limit: 10}) },
				} {
					j := k.add(func(j *serverless.Job) { j.Expires = k.now + 1000 })
					k.wait(time.Second)
					find(j)
					k.expire() // a queue may leave it to the sweep
					h.done("it was found", j)
				}
			}),
		rule("WatchTellsWorkersToStop",
			"Watch names the worker that should drop the job: after cancel, timeout, loss, ttl",
			func(k *kit) {
				h := k.watch()
				j := k.run()
				k.must(user(j, serverless.OpCancel))
				h.stopped("OpCancel", j)
				j = k.run(func(j *serverless.Job) { j.ExecTimeout = 5000 })
				k.wait(5 * time.Second)
				k.expire()
				h.stopped("the execution timeout", j)
				j = k.run(func(j *serverless.Job) { j.Expires = k.now + 1000 })
				k.wait(time.Second)
				k.expire()
				h.stopped("the ttl", j)
				j = k.run()
				k.now += lease
				k.expire()
				h.stopped("the end of the lease", j)
			}),
		rule("WatchTellsOfChunks",
			"Watch tells that a job has something to drain",
			func(k *kit) {
				h := k.watch()
				j := k.run()
				k.must(chunk(j, "1"))
				h.until("OpChunk", serverless.Event{Kind: serverless.EventChunk, Ref: j.Ref})
			}),
		rule("WhatIsToldIsThere",
			"hints are sent after the commit: who looks finds what is told of; f may call the queue",
			func(k *kit) {
				ctx, cancel := context.WithCancel(k.Context())
				defer cancel()
				seen := make(chan error, 10_000)
				go func() {
					_ = k.q.Watch(ctx, func(evs []serverless.Event) {
						for _, e := range evs {
							if e.Kind != serverless.EventReady {
								continue
							}
							s, err := k.q.Stats(ctx, start, e.Endpoint)
							if err == nil && s.Queued == 0 {
								err = errors.New("nothing is queued")
							}
							seen <- err
						}
					})
				}()
				late := time.NewTimer(patience)
				defer late.Stop()
				for n := 0; n < 10; {
					k.add()
					again := time.NewTimer(tick)
					select {
					case err := <-seen:
						n++
						if err != nil {
							k.Fatalf("Stats of an endpoint that was told of = %v, want a queued job", err)
						}
					case <-again.C:
					case <-late.C:
						k.Fatalf("waited %s for Watch to tell of jobs", patience)
					}
					again.Stop()
				}
			}),
		rule("WatchEndsWithItsContext",
			"Watch returns when its context ends, and others go on",
			func(k *kit) {
				first, second := k.watch(), k.watch()
				first.stop()
				late := time.NewTimer(patience)
				defer late.Stop()
				select {
				case err := <-first.err:
					k.equal("Watch ended because of its context", true, err != nil)
				case <-late.C:
					k.Fatalf("waited %s for Watch to return", patience)
				}
				k.add()
				second.ready("Enqueue")
			}),
	}
}

package serverlesstest

import (
	"context"
	"errors"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

const (
	eventTimeout = 30 * time.Second      // how long the suite waits for a hint
	tick         = 10 * time.Millisecond // time between two checks
)

// An eventReader has the events of a Watch.
type eventReader struct {
	k      *fixture
	events chan queue.Event
	err    chan error
	stop   context.CancelFunc
}

// watch starts a Watch and returns when it is known to watch: it was told of something.
func (k *fixture) watch() *eventReader {
	k.Helper()
	ctx, cancel := context.WithCancel(k.Context())
	h := &eventReader{k: k, events: make(chan queue.Event, 10_000), err: make(chan error, 1), stop: cancel}
	go func() {
		h.err <- k.q.Watch(ctx, func(evs []queue.Event) {
			for _, e := range evs {
				h.events <- e
			}
		})
	}()
	k.Cleanup(cancel)
	for waited := time.Duration(0); waited < eventTimeout; waited += tick {
		k.add(onEndpoint("probe"))
		again := time.NewTimer(tick)
		select {
		case <-h.events:
			again.Stop()
			return h
		case <-again.C:
		}
	}
	k.Fatalf("waited %s for Watch to tell of anything", eventTimeout)
	return nil
}

// await waits for a hint; a gap stands for any.
func (h *eventReader) await(what string, want queue.Event) {
	h.k.Helper()
	late := time.NewTimer(eventTimeout)
	defer late.Stop()
	for {
		select {
		case e := <-h.events:
			if e.Kind == queue.EventReady {
				e.ID = "" // it is a hint at the endpoint
			}
			if e == want || e.Kind == queue.EventGap {
				return
			}
		case <-late.C:
			h.k.Fatalf("waited %s for %+v after %s", eventTimeout, want, what)
		}
	}
}

func (h *eventReader) ready(what string) {
	h.k.Helper()
	h.await(what, queue.Event{Kind: queue.EventReady, Ref: queue.Ref{Endpoint: echo}})
}

func (h *eventReader) done(what string, j queue.Job) {
	h.k.Helper()
	h.await(what, queue.Event{Kind: queue.EventDone, Ref: j.Ref})
}

func (h *eventReader) stopped(what string, j queue.Job) {
	h.k.Helper()
	h.await(what, queue.Event{Kind: queue.EventStop, Ref: j.Ref, Worker: j.Worker})
}

func watchCases() []QueueCase {
	return []QueueCase{
		rule("WatchTellsThatAJobIsReady",
			"Watch reports that a job of an endpoint can be claimed: after submit, release, loss, the wait of a loser, retry",
			func(k *fixture) {
				h := k.watch()
				j := k.add()
				h.ready("Enqueue")
				k.mustApply(workerOp(k.take("w"), queue.OpRelease))
				h.ready("OpRelease")
				k.take("w")
				k.now += lease
				k.expire()
				h.ready("the end of a lease")
				k.wait(queue.LoserWait)
				k.expire()
				h.ready("the time in which its loser may not claim")
				k.mustApply(failOp(k.take("x"), "no"))
				k.mustApply(userOp(j, queue.OpRetry))
				h.ready("OpRetry")
			}),
		rule("WatchTellsThatAJobIsDone",
			"Watch reports that a job has ended or is gone: after a report, cancel, purge, timeout, ttl",
			func(k *fixture) {
				h := k.watch()
				j := k.run()
				k.mustApply(finishOp(j, "1"))
				h.done("OpFinish", j)
				j = k.add()
				k.mustApply(userOp(j, queue.OpCancel))
				h.done("OpCancel", j)
				j = k.add()
				k.purge(queue.PurgeQuery{Endpoint: echo, UpTo: 1<<63 - 1, Limit: 10})
				h.done("Purge", j)
				j = k.run(func(j *queue.Job) { j.ExecTimeout = 5 * time.Second })
				k.wait(5 * time.Second)
				k.expire()
				h.done("the execution timeout", j)
				j = k.add(func(j *queue.Job) { j.Expires = k.now + 1000 })
				k.wait(time.Second)
				k.expire()
				h.done("the ttl", j)
			}),
		rule("WatchTellsWhoeverFindsItGone",
			"Watch reports a job past its ttl also when an op or a claim finds it first",
			func(k *fixture) {
				h := k.watch()
				for _, find := range []func(j queue.Job){
					func(j queue.Job) { k.mustRefuse(userOp(j, queue.OpCancel), queue.ErrNotFound) },
					func(queue.Job) { k.claim(k.slot("w", 1)) },
					func(queue.Job) { k.purge(queue.PurgeQuery{Endpoint: echo, UpTo: 1<<63 - 1, Limit: 10}) },
				} {
					j := k.add(func(j *queue.Job) { j.Expires = k.now + 1000 })
					k.wait(time.Second)
					find(j)
					k.expire() // a queue may leave it to the sweep
					h.done("it was found", j)
				}
			}),
		rule("WatchTellsWorkersToStop",
			"Watch names the worker that must stop the job: after cancel, timeout, loss, ttl",
			func(k *fixture) {
				h := k.watch()
				j := k.run()
				k.mustApply(userOp(j, queue.OpCancel))
				h.stopped("OpCancel", j)
				j = k.run(func(j *queue.Job) { j.ExecTimeout = 5 * time.Second })
				k.wait(5 * time.Second)
				k.expire()
				h.stopped("the execution timeout", j)
				j = k.run(func(j *queue.Job) { j.Expires = k.now + 1000 })
				k.wait(time.Second)
				k.expire()
				h.stopped("the ttl", j)
				j = k.run()
				k.now += lease
				k.expire()
				h.stopped("the end of the lease", j)
			}),
		rule("WatchTellsOfChunks",
			"Watch reports that a job has a new chunk",
			func(k *fixture) {
				h := k.watch()
				j := k.run()
				k.mustApply(chunk(j, "1"))
				h.await("OpChunk", queue.Event{Kind: queue.EventChunk, Ref: j.Ref})
			}),
		rule("WhatIsToldIsThere",
			"events are sent after the commit, so a reader sees the change; f may call the queue",
			func(k *fixture) {
				ctx, cancel := context.WithCancel(k.Context())
				defer cancel()
				seen := make(chan error, 10_000)
				go func() {
					_ = k.q.Watch(ctx, func(evs []queue.Event) {
						for _, e := range evs {
							if e.Kind == queue.EventGap {
								e.Endpoint = echo // it stands for any event
							} else if e.Kind != queue.EventReady {
								continue
							}
							s, err := k.q.Stats(ctx, start, e.Endpoint, nil)
							if e.Kind == queue.EventGap && s.Queued == 0 {
								continue // nothing had happened
							}
							if err == nil && s.Queued == 0 {
								err = errors.New("nothing is queued")
							}
							seen <- err
						}
					})
				}()
				late := time.NewTimer(eventTimeout)
				defer late.Stop()
				for n := 0; n < 10; {
					k.add()
					again := time.NewTimer(tick)
					select {
					case err := <-seen:
						n++
						if err != nil {
							k.Fatalf("Stats of an endpoint after its event = %v, want a queued job", err)
						}
					case <-again.C:
					case <-late.C:
						k.Fatalf("waited %s for Watch to tell of jobs", eventTimeout)
					}
					again.Stop()
				}
			}),
		rule("WatchEndsWithItsContext",
			"Watch returns when its context ends, and others go on",
			func(k *fixture) {
				first, second := k.watch(), k.watch()
				first.stop()
				late := time.NewTimer(eventTimeout)
				defer late.Stop()
				select {
				case err := <-first.err:
					k.wantEqual("Watch ended because of its context", true, err != nil)
				case <-late.C:
					k.Fatalf("waited %s for Watch to return", eventTimeout)
				}
				k.add()
				second.ready("Enqueue")
			}),
	}
}

package serverlesstest

import (
	"fmt"
	"strings"

	"github.com/podyard/podyard/serverless/queue"
)

// drain moves the cursor past the chunks that Chunks gave with s.
func drain(j queue.Job, s queue.State, list []string) queue.Op {
	op := queue.Op{Ref: j.Ref, Kind: queue.OpDrain, Token: s.Token, From: s.Drained, N: uint32(len(list))}
	for _, c := range list {
		op.Bytes += int64(len(c))
	}
	return op
}

func streamCases() []QueueCase {
	const all = 1 << 20
	return []QueueCase{
		rule("ChunksInOrder",
			"chunks come in the order they were added, byte for byte, with the state of the same instant",
			func(k *fixture) {
				j := k.run()
				var want []string
				for i := range 100 {
					c := fmt.Sprintf("{\"output\": %d }\n", i)
					want = append(want, c)
					k.mustApply(chunk(j, c))
				}
				got, s := k.chunks(j, all)
				k.wantEqual("chunks", want, got)
				k.wantEqual("Chunks, Drained, Stream", []int64{100, 0, int64(len(strings.Join(want, "")))}, []int64{int64(s.Chunks), int64(s.Drained), s.Stream})
			}),
		rule("ALookTakesNothing",
			"Chunks does not move the cursor: a repeated call returns the same",
			func(k *fixture) {
				j := k.run()
				k.mustApply(chunk(j, "1"), chunk(j, "2"))
				first, _ := k.chunks(j, all)
				second, _ := k.chunks(j, all)
				k.wantEqual("second look", first, second)
			}),
		rule("NoChunksIsNoError",
			"Chunks of a job without any is its state alone",
			func(k *fixture) {
				j := k.add()
				got, s := k.chunks(j, all)
				k.wantEqual("chunks", []string(nil), got)
				k.wantEqual("State", k.get(j).State, s)
			}),
		rule("NoMoreBytesThanAskedFor",
			"Chunks returns at most maxBytes, but at least one chunk",
			func(k *fixture) {
				j := k.run()
				for _, n := range []int{10, 10, 10, 50} {
					k.mustApply(chunk(j, strings.Repeat("x", n)))
				}
				for _, c := range []struct{ max, want int }{{1, 1}, {10, 1}, {19, 1}, {20, 2}, {79, 3}, {80, 4}, {0, 1}} {
					got, _ := k.chunks(j, c.max)
					k.wantEqual(fmt.Sprintf("chunks in %d bytes", c.max), c.want, len(got))
				}
			}),
		rule("DrainMovesTheCursor",
			"drained chunks are removed: the next call begins after them",
			func(k *fixture) {
				j := k.run()
				var got []string
				for i := range 50 {
					k.mustApply(chunk(j, fmt.Sprintf("a%02d", i)), chunk(j, fmt.Sprintf("b%02d", i)))
					some, s := k.chunks(j, 9)
					k.wantEqual("Drained", len(got), int(s.Drained))
					s = k.mustApply(drain(j, s, some))
					got = append(got, some...)
					k.wantEqual("Drained", len(got), int(s.Drained))
				}
				k.wantEqual("chunks read", 100, len(got))
				for i := range 50 {
					k.wantEqual("chunk", []string{fmt.Sprintf("a%02d", i), fmt.Sprintf("b%02d", i)}, got[2*i:2*i+2])
				}
				_, s := k.chunks(j, all)
				k.wantEqual("Stream", int64(0), s.Stream)
			}),
		rule("ADrainIsFencedByPlace",
			"a drain from elsewhere than the cursor, as of a slow reader or a repeat, moves nothing",
			func(k *fixture) {
				j := k.run()
				k.mustApply(chunk(j, "1"), chunk(j, "2"), chunk(j, "3"))
				some, s := k.chunks(j, 2)
				op := drain(j, s, some)
				k.mustApply(op)
				before := k.get(j).State
				ahead := op
				ahead.From = 3
				k.mustApply(op, ahead)
				k.wantEqual("State", before, k.get(j).State)
				left, _ := k.chunks(j, all)
				k.wantEqual("chunks", []string{"3"}, left)
			}),
		rule("ADrainIsFencedByLease",
			"a drain of chunks of an earlier lease moves nothing: those of the next are not lost",
			func(k *fixture) {
				j := k.run()
				k.mustApply(chunk(j, "old"))
				some, s := k.chunks(j, all)
				k.mustApply(workerOp(j, queue.OpRelease))
				second := k.take("second")
				k.mustApply(chunk(second, "new"))
				k.mustApply(drain(j, s, some))
				left, _ := k.chunks(j, all)
				k.wantEqual("chunks", []string{"new"}, left)
			}),
		rule("NoMoreIsDrainedThanThere",
			"a drain of more chunks than there are, or of none, moves nothing",
			func(k *fixture) {
				j := k.run()
				k.mustApply(chunk(j, "1"))
				_, s := k.chunks(j, all)
				k.mustApply(drain(j, s, []string{"1", "2"}), drain(j, s, nil))
				left, _ := k.chunks(j, all)
				k.wantEqual("chunks", []string{"1"}, left)
			}),
		rule("ChunksOutliveTheRun",
			"chunks that nobody drained are there when the job has ended, and can be drained",
			func(k *fixture) {
				j := k.run()
				k.mustApply(chunk(j, "1"), chunk(j, "2"), finishOp(j, "3"))
				some, s := k.chunks(j, 1)
				k.wantEqual("Status", queue.Completed, s.Status)
				k.mustApply(drain(j, s, some))
				left, _ := k.chunks(j, all)
				k.wantEqual("chunks", []string{"2"}, left)
				k.wantEqual("Output", "3", string(k.get(j).Output))
			}),
		rule("OnlyTheHolderAddsChunks",
			"a chunk of a worker that does not hold the job answers ErrLeaseLost",
			func(k *fixture) {
				j := k.run()
				other := chunk(j, "1")
				other.Worker = "other"
				k.mustRefuse(other, queue.ErrLeaseLost)
				k.mustApply(finishOp(j, "1"))
				k.mustRefuse(chunk(j, "2"), queue.ErrLeaseLost)
			}),
		rule("AStreamIsBounded",
			"a stream that holds MaxStream bytes takes no more, answers ErrStreamFull, and goes on when it is read",
			func(k *fixture) {
				j := k.run()
				const size = queue.MaxStream / 16
				big := strings.Repeat("x", size)
				for range 16 {
					k.mustApply(chunk(j, big))
				}
				k.mustRefuse(chunk(j, "1"), queue.ErrStreamFull)
				some, s := k.chunks(j, 1)
				k.mustApply(drain(j, s, some))
				k.mustApply(chunk(j, "1"))
				k.mustApply(finishOp(j, "2"))
			}),
	}
}

package serverlesstest

import (
	"fmt"
	"strings"

	"github.com/podyard/podyard/serverless"
)

// drain moves the cursor past the chunks that Chunks gave with s.
func drain(j serverless.Job, s serverless.State, list []string) serverless.Op {
	op := serverless.Op{Ref: j.Ref, Kind: serverless.OpDrain, Token: s.Token, From: s.Drained, N: uint32(len(list))}
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
			func(k *kit) {
				j := k.run()
				var want []string
				for i := range 100 {
					c := fmt.Sprintf("{\"output\": %d }\n", i)
					want = append(want, c)
					k.must(chunk(j, c))
				}
				got, s := k.chunks(j, all)
				k.equal("chunks", want, got)
				k.equal("Chunks, Drained, Stream", []int64{100, 0, int64(len(strings.Join(want, "")))}, []int64{int64(s.Chunks), int64(s.Drained), s.Stream})
			}),
		rule("ALookTakesNothing",
			"Chunks leaves the cursor where it is: who asks again gets the same",
			func(k *kit) {
				j := k.run()
				k.must(chunk(j, "1"), chunk(j, "2"))
				first, _ := k.chunks(j, all)
				second, _ := k.chunks(j, all)
				k.equal("second look", first, second)
			}),
		rule("NoChunksIsNoError",
			"Chunks of a job without any is its state alone",
			func(k *kit) {
				j := k.add()
				got, s := k.chunks(j, all)
				k.equal("chunks", []string(nil), got)
				k.equal("State", k.get(j).State, s)
			}),
		rule("NoMoreBytesThanAskedFor",
			"Chunks gives maxBytes at most, but one chunk at least",
			func(k *kit) {
				j := k.run()
				for _, n := range []int{10, 10, 10, 50} {
					k.must(chunk(j, strings.Repeat("x", n)))
				}
				for _, c := range []struct{ max, want int }{{1, 1}, {10, 1}, {19, 1}, {20, 2}, {79, 3}, {80, 4}, {0, 1}} {
					got, _ := k.chunks(j, c.max)
					k.equal(fmt.Sprintf("chunks in %d bytes", c.max), c.want, len(got))
				}
			}),
		rule("DrainMovesTheCursor",
			"drained chunks are done with: the next look begins after them",
			func(k *kit) {
				j := k.run()
				var got []string
				for i := range 50 {
					k.must(chunk(j, fmt.Sprintf("a%02d", i)), chunk(j, fmt.Sprintf("b%02d", i)))
					some, s := k.chunks(j, 9)
					k.equal("Drained", len(got), int(s.Drained))
					s = k.must(drain(j, s, some))
					got = append(got, some...)
					k.equal("Drained", len(got), int(s.Drained))
				}
				k.equal("chunks read", 100, len(got))
				for i := range 50 {
					k.equal("chunk", []string{fmt.Sprintf("a%02d", i), fmt.Sprintf("b%02d", i)}, got[2*i:2*i+2])
				}
				_, s := k.chunks(j, all)
				k.equal("Stream", int64(0), s.Stream)
			}),
		rule("ADrainIsFencedByPlace",
			"a drain from elsewhere than the cursor, as of a slow reader or a repeat, moves nothing",
			func(k *kit) {
				j := k.run()
				k.must(chunk(j, "1"), chunk(j, "2"), chunk(j, "3"))
				some, s := k.chunks(j, 2)
				op := drain(j, s, some)
				k.must(op)
				before := k.get(j).State
				ahead := op
				ahead.From = 3
				k.must(op, ahead)
				k.equal("State", before, k.get(j).State)
				left, _ := k.chunks(j, all)
				k.equal("chunks", []string{"3"}, left)
			}),
		rule("ADrainIsFencedByLease",
			"a drain of chunks of an earlier lease moves nothing: those of the next are not lost",
			func(k *kit) {
				j := k.run()
				k.must(chunk(j, "old"))
				some, s := k.chunks(j, all)
				k.must(as(j, serverless.OpRelease))
				second := k.take("second")
				k.must(chunk(second, "new"))
				k.must(drain(j, s, some))
				left, _ := k.chunks(j, all)
				k.equal("chunks", []string{"new"}, left)
			}),
		rule("NoMoreIsDrainedThanThere",
			"a drain of more chunks than there are, or of none, moves nothing",
			func(k *kit) {
				j := k.run()
				k.must(chunk(j, "1"))
				_, s := k.chunks(j, all)
				k.must(drain(j, s, []string{"1", "2"}), drain(j, s, nil))
				left, _ := k.chunks(j, all)
				k.equal("chunks", []string{"1"}, left)
			}),
		rule("ChunksOutliveTheRun",
			"chunks that nobody drained are there when the job has ended, and can be drained",
			func(k *kit) {
				j := k.run()
				k.must(chunk(j, "1"), chunk(j, "2"), done(j, "3"))
				some, s := k.chunks(j, 1)
				k.equal("Status", serverless.Completed, s.Status)
				k.must(drain(j, s, some))
				left, _ := k.chunks(j, all)
				k.equal("chunks", []string{"2"}, left)
				k.equal("Output", "3", string(k.get(j).Output))
			}),
		rule("OnlyTheHolderAddsChunks",
			"a chunk of a worker that does not hold the job answers ErrLeaseLost",
			func(k *kit) {
				j := k.run()
				other := chunk(j, "1")
				other.Worker = "other"
				k.refuse(other, serverless.ErrLeaseLost)
				k.must(done(j, "1"))
				k.refuse(chunk(j, "2"), serverless.ErrLeaseLost)
			}),
		rule("AStreamIsBounded",
			"a stream that holds MaxStream bytes takes no more, answers ErrStreamFull, and goes on when it is read",
			func(k *kit) {
				j := k.run()
				const size = serverless.MaxStream / 16
				big := strings.Repeat("x", size)
				for range 16 {
					k.must(chunk(j, big))
				}
				k.refuse(chunk(j, "1"), serverless.ErrStreamFull)
				some, s := k.chunks(j, 1)
				k.must(drain(j, s, some))
				k.must(chunk(j, "1"))
				k.must(done(j, "2"))
			}),
	}
}

package postgres

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// stateFormat is the first byte of an encoded state. Later numbers are added at the end, and a
// state without them has zeros.
const stateFormat = 1

// stateCount is how many numbers a state has.
const stateCount = 32

var errState = errors.New("postgres: the state of a job does not decode")

// stateNumbers are the numbers of a state but Seq, which has a column, in the order in which they
// are stored.
func stateNumbers(s *queue.State) [stateCount]int64 {
	return [stateCount]int64{
		int64(s.Status), int64(s.Flags), int64(s.Reason), int64(s.Deliveries), int64(s.Restarts), int64(s.Priority), int64(s.Attempt),
		bit(s.Delayed), bit(s.Read), int64(s.Run), int64(s.Token), int64(s.Submitted), int64(s.Queued), int64(s.Started), int64(s.Finished),
		int64(s.LeaseUntil), int64(s.RunUntil), int64(s.Expires), s.ExecTimeout.Milliseconds(), s.Retain.Milliseconds(),
		int64(s.Chunks), int64(s.Drained), s.Stream, int64(s.Retry.Attempts), bit(s.Retry.Timeouts),
		int64(math.Float32bits(s.Retry.Factor)), int64(math.Float32bits(s.Retry.Jitter)),
		s.Retry.Delay.Milliseconds(), s.Retry.MaxDelay.Milliseconds(), s.DeadLetter.Milliseconds(),
		int64(s.InBytes), int64(s.OutBytes),
	}
}

func stateOf(n *[stateCount]int64) queue.State {
	ms := func(i int) time.Duration { return time.Duration(n[i]) * time.Millisecond }
	return queue.State{
		Status: queue.Status(n[0]), Flags: queue.Flags(n[1]), Reason: queue.Reason(n[2]), Deliveries: uint8(n[3]), Restarts: uint8(n[4]),
		Priority: uint8(n[5]), Attempt: uint8(n[6]), Delayed: n[7] != 0, Read: n[8] != 0, Run: uint32(n[9]), Token: queue.Token(n[10]),
		Submitted: queue.Instant(n[11]), Queued: queue.Instant(n[12]), Started: queue.Instant(n[13]), Finished: queue.Instant(n[14]),
		LeaseUntil: queue.Instant(n[15]), RunUntil: queue.Instant(n[16]), Expires: queue.Instant(n[17]), ExecTimeout: ms(18), Retain: ms(19),
		Chunks: uint32(n[20]), Drained: uint32(n[21]), Stream: n[22],
		Retry: queue.RetryPolicy{
			Attempts: uint8(n[23]), Timeouts: n[24] != 0, Factor: math.Float32frombits(uint32(n[25])),
			Jitter: math.Float32frombits(uint32(n[26])), Delay: ms(27), MaxDelay: ms(28),
		},
		DeadLetter: ms(29), InBytes: uint32(n[30]), OutBytes: uint32(n[31]),
	}
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func encodeState(s *queue.State) []byte {
	b := make([]byte, 1, 128)
	b[0] = stateFormat
	for _, text := range [...]queue.WorkerID{s.Worker, s.Lost} {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	for _, n := range stateNumbers(s) {
		b = binary.AppendVarint(b, n)
	}
	return b
}

func decodeState(b []byte, seq int64) (queue.State, error) {
	if len(b) == 0 || b[0] != stateFormat {
		return queue.State{}, errState
	}
	b = b[1:]
	var texts [2]queue.WorkerID
	for i := range texts {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return queue.State{}, errState
		}
		texts[i] = queue.WorkerID(b[size : size+int(n)])
		b = b[size+int(n):]
	}
	var numbers [stateCount]int64
	for i := range numbers {
		if len(b) == 0 {
			break
		}
		n, size := binary.Varint(b)
		if size <= 0 {
			return queue.State{}, errState
		}
		numbers[i], b = n, b[size:]
	}
	s := stateOf(&numbers)
	s.Seq, s.Worker, s.Lost = uint64(seq), texts[0], texts[1]
	return s, nil
}

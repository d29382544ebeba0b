package queue

import (
	"math"
	"time"
)

// StateNumbers is how many numbers a State has. It grows with later versions.
const StateNumbers = 40

// Numbers returns the members of s as numbers, except Seq, Worker, Lost and the key of Unique. Their order never
// changes: a new member comes last, and is 0 in a state that was stored before there was one. So a
// backend that stores the numbers as they are keeps the members of later versions too.
func (s *State) Numbers() [StateNumbers]int64 {
	return [StateNumbers]int64{
		int64(s.Status), int64(s.Flags), int64(s.Reason), int64(s.Deliveries), int64(s.Restarts), int64(s.Priority), int64(s.Attempt),
		bit(s.Delayed), bit(s.Read), int64(s.Run), int64(s.Token), int64(s.Submitted), int64(s.Queued), int64(s.Started), int64(s.Finished),
		int64(s.LeaseUntil), int64(s.RunUntil), int64(s.Expires), s.ExecTimeout.Milliseconds(), s.Retain.Milliseconds(),
		int64(s.Chunks), int64(s.Drained), s.Stream, int64(s.Retry.Attempts), bit(s.Retry.Timeouts),
		int64(math.Float32bits(s.Retry.Factor)), int64(math.Float32bits(s.Retry.Jitter)),
		s.Retry.Delay.Milliseconds(), s.Retry.MaxDelay.Milliseconds(), s.DeadLetter.Milliseconds(),
		int64(s.InBytes), int64(s.OutBytes), int64(s.Leases), int64(s.FirstChunk),
		int64(s.Releases), bit(s.Returned), int64(s.LostStarted),
		int64(s.Unique.While), s.Unique.Period.Milliseconds(), int64(s.Snoozes),
	}
}

// SetNumbers sets what Numbers returns.
func (s *State) SetNumbers(n *[StateNumbers]int64) {
	ms := func(i int) time.Duration { return time.Duration(n[i]) * time.Millisecond }
	*s = State{
		Seq: s.Seq, Worker: s.Worker, Lost: s.Lost,
		Status: Status(n[0]), Flags: Flags(n[1]), Reason: Reason(n[2]), Deliveries: uint8(n[3]), Restarts: uint8(n[4]),
		Priority: uint8(n[5]), Attempt: uint8(n[6]), Delayed: n[7] != 0, Read: n[8] != 0, Run: uint32(n[9]), Token: Token(n[10]),
		Submitted: Instant(n[11]), Queued: Instant(n[12]), Started: Instant(n[13]), Finished: Instant(n[14]),
		LeaseUntil: Instant(n[15]), RunUntil: Instant(n[16]), Expires: Instant(n[17]),
		Chunks: uint32(n[20]), Drained: uint32(n[21]), Stream: n[22],
		InBytes: uint32(n[30]), OutBytes: uint32(n[31]), Leases: uint8(n[32]), FirstChunk: Instant(n[33]),
		Releases: uint8(n[34]), Returned: n[35] != 0, LostStarted: Instant(n[36]), Snoozes: uint16(n[39]),
		Terms: Terms{
			ExecTimeout: ms(18), Retain: ms(19), DeadLetter: ms(29),
			Unique: Unique{Key: s.Unique.Key, While: UniqueWhile(n[37]), Period: ms(38)},
			Retry: RetryPolicy{
				Attempts: uint8(n[23]), Timeouts: n[24] != 0, Factor: math.Float32frombits(uint32(n[25])),
				Jitter: math.Float32frombits(uint32(n[26])), Delay: ms(27), MaxDelay: ms(28),
			},
		},
	}
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

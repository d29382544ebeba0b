package disk

import (
	"bytes"
	"encoding/binary"
	"math"
	"time"

	"github.com/podyard/podyard/internal/jobindex"
	"github.com/podyard/podyard/serverless/queue"
)

// formatVersion is the format that this program writes. It grows when a program for the
// previous version could misread the data. Version 2 allows runs above 255, version 3 extras
// with a trace context, and jobs with the members that say when they are claimed, version 4 logs of
// leases and the time of the first chunk, version 5 has no files from which tables and logs were restored, version 6
// has secrets, which a program for version 5 would leave sealed with an old key.
// Each number that a state got since is a version too.
const (
	formatVersion = 6 + queue.StateNumbers - ownNumbers
	oldestFormat  = 1
)

// ownNumbers is how many of queue.State.Numbers have places of their own in a record. Those that a
// state got later are kept as they are.
const ownNumbers = 34

// A stored is the value of the record of a job, of an entry of its webhook, or of a dead letter.
// It has no payloads.
type stored struct {
	ref   queue.Ref
	owner string
	key   string
	state queue.State
	note  jobindex.Metadata
	marks jobindex.Marks // only HasExtra
	// Only in entries of webhooks.
	tries uint32
	due   queue.Instant // in dead letters: their order
}

// appendTo encodes the fields in a fixed order: numbers as varints, strings after their
// length. Newer fields come last; a record without them ends earlier.
func (s *stored) appendTo(b []byte) []byte {
	for _, text := range [...]string{s.ref.Endpoint, string(s.ref.ID), s.owner, string(s.state.Worker), string(s.state.Lost)} {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	st := &s.state
	b = append(b, byte(st.Status), byte(st.Flags), byte(st.Reason), st.Deliveries, st.Restarts, byte(st.Run), byte(s.marks&jobindex.HasExtra))
	for _, n := range [...]uint64{
		st.Seq, uint64(st.Token), uint64(st.Chunks), uint64(st.Drained), uint64(s.note.Output), uint64(s.note.Chunk), uint64(s.tries),
	} {
		b = binary.AppendUvarint(b, n)
	}
	for _, n := range [...]int64{
		int64(st.Submitted), int64(st.Queued), int64(st.Started), int64(st.Finished), int64(st.LeaseUntil), int64(st.RunUntil),
		int64(st.Expires), st.ExecTimeout.Milliseconds(), st.Retain.Milliseconds(), st.Stream, int64(s.due),
	} {
		b = binary.AppendVarint(b, n)
	}
	some := s.members()
	if st.Run > math.MaxUint8 || some != 0 { // since version 2; the low byte stays in its place
		b = binary.AppendUvarint(b, uint64(st.Run>>8))
	}
	if some != 0 { // since version 3
		b = s.appendMembers(b, some)
	}
	return b
}

// The members that few jobs have, as bits: a record has a number of these bits, and then the
// members in this order. A new one comes last.
const (
	hasPriority = 1 << iota // not the default
	hasKey
	isDelayed // has no value
	hasAttempt
	hasRetry
	isRead // has no value
	hasDead
	hasSizes // not of records that are older than sizes
	hasLeases
	hasFirstChunk
	hasLater // numbers beyond ownNumbers
	hasUnique
	membersEnd
)

func (s *stored) members() (some uint64) {
	st := &s.state
	for _, m := range [...]struct {
		has bool
		bit uint64
	}{
		{st.Priority != queue.DefaultPriority, hasPriority}, {s.key != "", hasKey}, {st.Delayed, isDelayed},
		{st.Attempt != 0, hasAttempt}, {st.Retry != queue.RetryPolicy{}, hasRetry},
		{st.Read, isRead}, {st.DeadLetter != 0, hasDead},
		{st.InBytes != unknownSize || st.OutBytes != 0, hasSizes}, {st.Leases != 0, hasLeases}, {st.FirstChunk != 0, hasFirstChunk},
		{len(laterNumbers(st)) > 0, hasLater}, {st.Unique.Key != "", hasUnique},
	} {
		if m.has {
			some |= m.bit
		}
	}
	return some
}

func (s *stored) appendMembers(b []byte, some uint64) []byte {
	b = binary.AppendUvarint(b, some)
	if some&hasPriority != 0 {
		b = append(b, s.state.Priority)
	}
	if some&hasKey != 0 {
		b = append(binary.AppendUvarint(b, uint64(len(s.key))), s.key...)
	}
	if some&hasAttempt != 0 {
		b = append(b, s.state.Attempt)
	}
	if some&hasRetry != 0 {
		b = appendRetry(b, &s.state.Retry)
	}
	if some&hasDead != 0 {
		b = binary.AppendVarint(b, s.state.DeadLetter.Milliseconds())
	}
	if some&hasSizes != 0 {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(s.state.InBytes)), uint64(s.state.OutBytes))
	}
	if some&hasLeases != 0 {
		b = append(b, s.state.Leases)
	}
	if some&hasFirstChunk != 0 {
		b = binary.AppendVarint(b, int64(s.state.FirstChunk-s.state.Started))
	}
	if some&hasLater != 0 {
		b = appendNumbers(b, laterNumbers(&s.state))
	}
	if some&hasUnique != 0 {
		b = append(binary.AppendUvarint(b, uint64(len(s.state.Unique.Key))), s.state.Unique.Key...)
	}
	return b
}

func appendRetry(b []byte, p *queue.RetryPolicy) []byte {
	b = append(b, p.Attempts, 0)
	if p.Timeouts {
		b[len(b)-1] = 1
	}
	for _, f := range [...]float32{p.Factor, p.Jitter} {
		b = binary.BigEndian.AppendUint32(b, math.Float32bits(f))
	}
	return binary.AppendVarint(binary.AppendVarint(b, p.Delay.Milliseconds()), p.MaxDelay.Milliseconds())
}

func (s *stored) decodeMembers(r *reader) {
	some := r.uint()
	r.bad = r.bad || some >= membersEnd
	if some&hasPriority != 0 {
		s.state.Priority = r.byte()
		r.bad = r.bad || s.state.Priority > queue.MaxPriority
	}
	if some&hasKey != 0 {
		s.key = r.text()
	}
	s.state.Delayed = some&isDelayed != 0
	if some&hasAttempt != 0 {
		s.state.Attempt = r.byte()
	}
	if some&hasRetry != 0 {
		p := &s.state.Retry
		p.Attempts, p.Timeouts = r.byte(), r.byte() != 0
		p.Factor, p.Jitter, p.Delay, p.MaxDelay = r.float32(), r.float32(), r.span(), r.span()
	}
	s.state.Read = some&isRead != 0
	if some&hasDead != 0 {
		s.state.DeadLetter = r.span()
	}
	if some&hasSizes != 0 {
		s.state.InBytes, s.state.OutBytes = r.uint32(), r.uint32()
	}
	if some&hasLeases != 0 {
		s.state.Leases = r.byte()
	}
	if some&hasFirstChunk != 0 {
		s.state.FirstChunk = s.state.Started + r.at()
	}
	if some&hasLater != 0 {
		s.decodeLater(r)
	}
	if some&hasUnique != 0 {
		s.state.Unique.Key = r.text()
	}
}

// decodeLater is not part of decodeMembers, so that records without later numbers need no room for
// all numbers.
func (s *stored) decodeLater(r *reader) {
	numbers := s.state.Numbers()
	r.numbers(numbers[ownNumbers:])
	s.state.SetNumbers(&numbers)
}

// laterNumbers returns the numbers beyond ownNumbers, without zeros at the end.
func laterNumbers(s *queue.State) []int64 {
	if queue.StateNumbers == ownNumbers {
		return nil
	}
	numbers := s.Numbers()
	n := len(numbers)
	for n > ownNumbers && numbers[n-1] == 0 {
		n--
	}
	return numbers[ownNumbers:n]
}

func appendNumbers(b []byte, list []int64) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, n := range list {
		b = binary.AppendVarint(b, n)
	}
	return b
}

// decode decodes what appendTo has encoded. The uid is in the key.
func (s *stored) decode(key, b []byte) error {
	r := reader{b: b}
	s.ref.Endpoint, s.ref.ID, s.owner = r.text(), queue.JobID(r.text()), r.text()
	st := &s.state
	st.Worker, st.Lost = queue.WorkerID(r.text()), queue.WorkerID(r.text())
	st.Status, st.Flags, st.Reason = queue.Status(r.byte()), queue.Flags(r.byte()), queue.Reason(r.byte())
	st.Deliveries, st.Restarts, st.Run = r.byte(), r.byte(), uint32(r.byte())
	s.marks = jobindex.Marks(r.byte()) & jobindex.HasExtra
	st.Seq, st.Token = r.uint(), queue.Token(r.uint())
	st.Chunks, st.Drained = r.uint32(), r.uint32()
	s.note.Output, s.note.Chunk, s.tries = r.uint32(), r.uint32(), r.uint32()
	st.Submitted, st.Queued, st.Started, st.Finished = r.at(), r.at(), r.at(), r.at()
	st.LeaseUntil, st.RunUntil, st.Expires = r.at(), r.at(), r.at()
	st.ExecTimeout, st.Retain, st.Stream, s.due = r.span(), r.span(), r.int(), r.at()
	if len(r.b) > 0 {
		st.Run |= r.uint32() << 8
	}
	st.Priority, st.InBytes = queue.DefaultPriority, unknownSize
	if len(r.b) > 0 {
		s.decodeMembers(&r)
	}
	if r.bad || len(key) < 9 || st.Status > queue.TimedOut {
		return damaged(key)
	}
	s.note.Tag = binary.BigEndian.Uint64(key[1:])
	return nil
}

// unknownSize is the size of the input in an old record, which does not say it. It is not 0,
// because then there is no input.
const unknownSize = 1

// A reader decodes a record. bad is set after a read beyond the end or of an invalid number.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) byte() byte {
	if p := r.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (r *reader) uint() uint64 {
	n, k := binary.Uvarint(r.b)
	if k <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[k:]
	return n
}

func (r *reader) uint32() uint32 {
	n := r.uint()
	r.bad = r.bad || n > math.MaxUint32
	return uint32(n)
}

func (r *reader) int() int64 {
	n, k := binary.Varint(r.b)
	if k <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[k:]
	return n
}

// numbers reads what appendNumbers has encoded into the first places of list.
func (r *reader) numbers(list []int64) {
	n := r.uint()
	if n > uint64(len(list)) {
		r.bad = true
		return
	}
	for i := range list[:n] {
		list[i] = r.int()
	}
}

func (r *reader) at() queue.Instant { return queue.Instant(r.int()) }

func (r *reader) span() time.Duration {
	n := r.int()
	d := time.Duration(n) * time.Millisecond
	r.bad = r.bad || d.Milliseconds() != n
	return d
}

// float32 reads a number that equals itself, so that a State can be compared.
func (r *reader) float32() float32 {
	p := r.take(4)
	if p == nil {
		return 0
	}
	f := math.Float32frombits(binary.BigEndian.Uint32(p))
	r.bad = r.bad || f != f
	return f
}

func (r *reader) text() string {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return ""
	}
	return string(r.take(int(n)))
}

// An output is stored as a byte that is 1 if there is an output, the error after its length,
// and the output.
func outputParts(op *queue.Op) (head, payload []byte) {
	head = []byte{0}
	if op.Payload != nil {
		head[0] = 1
	}
	head = append(binary.AppendUvarint(head, uint64(len(op.Error))), op.Error...)
	return head, op.Payload
}

func decodeOutput(key, value []byte) (output []byte, text string, err error) {
	r := reader{b: value}
	there := r.byte()
	text = r.text()
	if r.bad {
		return nil, "", damaged(key)
	}
	if there != 0 {
		output = r.b
	}
	return output, text, nil
}

// hasExtras reports whether a job has a record of extras.
func hasExtras(j *queue.Job) bool {
	return j.Webhook != "" || j.Extra != nil || j.Trace != (queue.Trace{})
}

// textsMark begins a record of extras that has more texts than the webhook: it is followed by
// their number. It is no length of version 1 and 2, which wrote each in the shortest form.
const textsMark = "\x80\x00"

// The extras of a job are stored as its webhook after its length, and its Extra, encrypted unless it
// has no secrets and there is no key.
// With more texts, the record begins with textsMark and has all texts before the Extra. A new
// text comes last.
func encodeExtras(seals sealer, key []byte, j *queue.Job) ([]byte, error) {
	texts := []string{j.Webhook}
	var b []byte
	if j.Trace != (queue.Trace{}) {
		texts = append(texts, j.Trace.Parent, j.Trace.State)
		b = binary.AppendUvarint([]byte(textsMark), uint64(len(texts)))
	}
	for _, text := range texts {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	if j.Extra == nil {
		return b, nil
	}
	sealed, err := seals.sealExtra(key, j.Extra)
	if err != nil {
		return nil, err
	}
	return append(b, sealed...), nil
}

func decodeExtras(seals sealer, key, value []byte, j *queue.Job) (err error) {
	r := reader{b: value}
	n := uint64(1)
	if rest, more := bytes.CutPrefix(r.b, []byte(textsMark)); more {
		r.b = rest
		n = r.uint()
	}
	for i, to := 0, [...]*string{&j.Webhook, &j.Trace.Parent, &j.Trace.State}; uint64(i) < n && !r.bad; i++ {
		if text := r.text(); i < len(to) {
			*to[i] = text
		}
	}
	if r.bad {
		return damaged(key)
	}
	if len(r.b) > 0 {
		j.Extra, err = seals.openExtra(key, r.b)
	}
	return err
}

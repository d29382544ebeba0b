package postgres

import (
	"encoding/binary"
	"errors"

	"github.com/podyard/podyard/serverless/queue"
)

// stateFormat is the first byte of an encoded state. Then come the workers and queue.State.Numbers. A
// state that a version with fewer numbers has stored has zeros for the others. Zeros beyond plainCount
// are left out at the end.
const stateFormat = 1

// keyPlace is the number after which the key of a unique job is.
const keyPlace = 39

// plainCount is how many numbers are always stored.
const plainCount = 32

var errState = errors.New("postgres: the state of a job does not decode")

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
	numbers := s.Numbers()
	n := len(numbers)
	for n > plainCount && numbers[n-1] == 0 {
		n--
	}
	key := s.Unique.Key
	if key != "" {
		n = max(n, keyPlace)
	}
	for i, number := range numbers[:n] {
		if b = binary.AppendVarint(b, number); i == keyPlace-1 && key != "" {
			b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
		}
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
	var numbers [queue.StateNumbers]int64
	var key string
	for i := range numbers {
		if len(b) == 0 {
			break
		}
		n, size := binary.Varint(b)
		if size <= 0 {
			return queue.State{}, errState
		}
		numbers[i], b = n, b[size:]
		if i == keyPlace-1 && numbers[keyPlace-2] != 0 {
			n, size := binary.Uvarint(b)
			if size <= 0 || n > uint64(len(b)-size) {
				return queue.State{}, errState
			}
			key, b = string(b[size:size+int(n)]), b[size+int(n):]
		}
	}
	s := queue.State{Seq: uint64(seq), Worker: texts[0], Lost: texts[1]}
	s.SetNumbers(&numbers)
	s.Unique.Key = key
	return s, nil
}

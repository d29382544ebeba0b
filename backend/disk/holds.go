package disk

import (
	"encoding/binary"
	"encoding/json"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/internal/jobindex"
	"github.com/podyard/podyard/serverless/queue"
)

// A hold of a key is a record of its own, because it stays when the job whose worker asked for it is deleted.
// No key is written twice: it has the job and the instant.
type storedHold struct {
	Endpoint, Owner, Key []byte
	Until                queue.Instant
}

func holdKey(t jobindex.HoldTag) []byte {
	return binary.BigEndian.AppendUint64(uidKey(keyHold, t.Job), uint64(t.Made))
}

// holds reports whether the move holds a key.
func (m *move) holds() bool { return m.eff&queue.HoldKey != 0 && m.key != "" }

func (m *move) holdTag() jobindex.HoldTag { return jobindex.HoldTag{Job: m.was.Tag, Made: m.now} }

func (m *move) writeHold(b *pebble.Batch) {
	h := m.op.HoldUntil(m.now)
	putJSON(b, holdKey(m.holdTag()), &storedHold{[]byte(m.ref.Endpoint), []byte(m.owner), []byte(m.key), h.Until})
}

func (q *jobQueue) loadHolds() error {
	return q.e.loadEach(keyHold, func(key, value []byte) error {
		t, h, err := decodeHold(key, value)
		if err == nil {
			q.x.LoadHold(string(h.Endpoint), string(h.Owner), string(h.Key), queue.Hold{Made: t.Made, Until: h.Until}, t)
		}
		return err
	})
}

func decodeHold(key, value []byte) (t jobindex.HoldTag, h storedHold, err error) {
	if len(key) != len(holdKey(t)) || json.Unmarshal(value, &h) != nil {
		return t, h, damaged(key)
	}
	t.Job, t.Made = binary.BigEndian.Uint64(key[1:]), queue.Instant(binary.BigEndian.Uint64(key[9:]))
	return t, h, nil
}

// dropHolds removes the records of holds that have ended. If a crash undoes that, they end again.
func (q *jobQueue) dropHolds(now queue.Instant) error {
	q.mu.Lock()
	q.x.EndHolds(now)
	list := q.x.EndedHolds()
	q.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	return q.e.submit(&commit{write: func(b *pebble.Batch) {
		for _, t := range list {
			drop(b, holdKey(t))
		}
	}, done: make(chan struct{})})
}

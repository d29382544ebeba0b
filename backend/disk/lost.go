package disk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/problem"
)

// A lost record is not treated as one that never existed. While a record of a kind is lost, no
// call answers that such a pod or job does not exist, every list of the kind ends with an
// error, and nothing is claimed that an unreadable pod may have claimed. This ends when Repair
// has reported what is lost.

// A gap is a range of keys that cannot be read in one table. Older tables may have outdated
// values in the range, so only newer values are kept.
type gap struct {
	From, To []byte // From is included, To is not
	Table    string
}

// A loss is a record in a gap that existed and may have changed, or a payload that Repair has
// reported.
type loss struct {
	Job   string `json:",omitempty"` // endpoint/id of the job that it belongs to
	What  string
	Known bool `json:",omitempty"` // Repair has reported it
}

func gapKey(from []byte) []byte { return append([]byte{keyGap}, from...) }
func lossKey(key []byte) []byte { return append([]byte{keyLoss}, key...) }

// putJSON adds a record that only this package reads.
func putJSON(b *pebble.Batch, key []byte, v any) {
	value, err := json.Marshal(v)
	if err != nil {
		panic(err) // structs of strings and bytes always marshal
	}
	put(b, key, value)
}

// overlaps reports whether the gap has keys in the range; to is not included.
func (g *gap) overlaps(from, to []byte) bool {
	return bytes.Compare(g.From, to) < 0 && bytes.Compare(from, g.To) < 0
}

// kinds returns the kinds of records that the gap may have contained.
func (g *gap) kinds() []byte {
	var kinds []byte
	for kind := range kindNames {
		if from, to := prefixRange([]byte{kind}); g.overlaps(from, to) {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// loadGaps loads what earlier openings have given up.
func (e *engine) loadGaps() error {
	e.lost, e.lostPayloads = map[byte]bool{}, map[uint64]bool{}
	err := e.loadEach(keyGap, func(_, value []byte) error {
		var g gap
		if err := json.Unmarshal(value, &g); err != nil {
			return err
		}
		for _, kind := range g.kinds() {
			e.lost[kind] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	if e.lost[keyGap] { // it is unknown which other kinds have losses
		for kind := range kindNames {
			e.lost[kind] = true
		}
	}
	return e.loadEach(keyLoss, func(key, _ []byte) error {
		if uid, ok := uidOfKey(key[1:]); ok && key[1] == keyBody {
			e.lostPayloads[uid] = true
		}
		return nil
	})
}

// loadEach is each for loading: it leaves out a damaged record and marks its kind as lost.
func (e *engine) loadEach(kind byte, fn func(key, value []byte) error) error {
	return eachRecord(e.db, []byte{kind}, func(key, value []byte, err error) error {
		if err == nil {
			err = fn(key, value)
		}
		if !errors.Is(err, ErrDamaged) {
			return err
		}
		e.lost[kind] = true
		e.s.damages.Add(1)
		e.s.opts.Logger.Error("a record cannot be read", "dir", e.s.dir, "err", err)
		return nil
	})
}

// missing returns the error for a record that does not exist: never, or errLost if a record of
// its kind is lost.
func (e *engine) missing(kind byte, never error) error {
	if e.lost[kind] {
		return errLost
	}
	return never
}

// errLost means that the requested record may have existed.
var errLost = problem.Newf(problem.Unavailable, "%w: a part of the store cannot be read, and what is asked for may be in it; check the store, and repair it", ErrDamaged)

// lossOf describes the loss of a record, from its last readable value.
func (e *engine) lossOf(key, record []byte) loss {
	l := loss{What: "its last change is lost"}
	value, err := verify(key, record)
	if err != nil {
		return l
	}
	if key[0] == keyJob || key[0] == keyEntry || key[0] == keyDead {
		var s stored
		if s.decode(key, value) == nil {
			l.Job = s.ref.Endpoint + "/" + string(s.ref.ID)
			l.What += fmt.Sprintf("; it was %v before, submitted at %s by %q", s.state.Status, s.state.Submitted.Time().Format(time.RFC3339), s.owner)
		}
	}
	return l
}

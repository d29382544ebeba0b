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

// What cannot be read is not as if it had never been there. While a record of a kind is lost,
// nobody is told that there is no such pod or job, no list of them ends without an error, and
// nothing is claimed that a pod may have which cannot be read. It stays so until Repair has
// named what is lost.

// A gap is a stretch of keys of which a part of a table cannot be read. What tables below it
// have of the stretch may be outdated, so nothing of it is left but what is newer.
type gap struct {
	From, To []byte // from From to before To
	Table    string
}

// A loss is a record of a gap that was there and may have changed, or a payload that Repair
// has named.
type loss struct {
	Job   string `json:",omitempty"` // whose it was
	What  string
	Known bool `json:",omitempty"` // Repair has named it
}

func gapKey(from []byte) []byte { return append([]byte{keyGap}, from...) }
func lossKey(key []byte) []byte { return append([]byte{keyLoss}, key...) }

// putJSON adds a record that only this package reads.
func putJSON(b *pebble.Batch, key []byte, v any) {
	value, err := json.Marshal(v)
	if err != nil {
		panic(err) // structs of texts and bytes always marshal
	}
	put(b, key, value)
}

// overlaps reports whether the gap has keys from from to before to.
func (g *gap) overlaps(from, to []byte) bool {
	return bytes.Compare(g.From, to) < 0 && bytes.Compare(from, g.To) < 0
}

// kinds are those of which the gap may have had records.
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

// loadGaps reads what earlier openings have given up.
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
	if e.lost[keyGap] { // of which kinds more is lost is not known
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

// loadEach is each at the opening: a record that is damaged is left out, and its kind is not
// whole then.
func (e *engine) loadEach(kind byte, fn func(key, value []byte) error) error {
	return eachRecord(e.db, []byte{kind}, func(key, value []byte, err error) error {
		if err == nil {
			err = fn(key, value)
		}
		if !errors.Is(err, ErrDamaged) {
			return err
		}
		e.lost[kind] = true
		e.s.opts.Logger.Error("a record cannot be read", "dir", e.s.dir, "err", err)
		return nil
	})
}

// missing is the answer to a question for a record that is not there: whether it was never
// there is known as long as nothing of its kind is lost.
func (e *engine) missing(kind byte, never error) error {
	if e.lost[kind] {
		return errLost
	}
	return never
}

// errLost says that what is asked for may have been there.
var errLost = problem.Newf(problem.Unavailable, "%w: a part of the store cannot be read, and what is asked for may be in it; check the store, and repair it", ErrDamaged)

// lossOf says what is lost with a record that was like this when it could last be read.
func (e *engine) lossOf(key, record []byte) loss {
	l := loss{What: "its last change is lost"}
	value, err := verify(key, record)
	if err != nil {
		return l
	}
	if key[0] == keyJob || key[0] == keyEntry {
		var s stored
		if s.decode(key, value) == nil {
			l.Job = s.ref.Endpoint + "/" + string(s.ref.ID)
			l.What += fmt.Sprintf("; it was %v before, submitted at %s by %q", s.state.Status, s.state.Submitted.Time().Format(time.RFC3339), s.owner)
		}
	}
	return l
}

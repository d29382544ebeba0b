package disk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
)

// A Report is what Check found.
type Report struct {
	Records int64 // that were looked at
	Bytes   int64 // of their values
	Faults  []Fault
}

// A Fault is a record that is not as it must be.
type Fault struct {
	Key  string // in hexadecimal, behind what it is a record of
	What string
}

// faultsKept is how many faults a Report has at most.
const faultsKept = 100

// Err is nil without faults, and otherwise says how many there are and what the first is.
func (r *Report) Err() error {
	if len(r.Faults) == 0 {
		return nil
	}
	return problem.Newf(problem.Unavailable, "%w: %d faults, the first: %s: %s", ErrDamaged, len(r.Faults), r.Faults[0].Key, r.Faults[0].What)
}

func (r *Report) add(key []byte, what string) {
	if len(r.Faults) < faultsKept {
		r.Faults = append(r.Faults, Fault{fmt.Sprintf("%s %x", kindNames[key[0]], key), what})
	}
}

// Check reads every record of the store, as of one instant and while it goes on working,
// verifies its checksums and that records that belong together are there. It does not
// change anything.
func (s *Store) Check(ctx context.Context) (r Report, err error) {
	e, err := s.engine()
	if err != nil {
		return r, err
	}
	defer func() {
		if p := recover(); p != nil {
			err = e.given(fmt.Errorf("disk: check: %v", p)) // the database was closed meanwhile
		}
	}()
	snap := e.db.NewSnapshot()
	defer func() { err = errors.Join(err, snap.Close()) }()
	c := checker{e: e, r: &r, snap: snap}
	return r, c.run(ctx)
}

// A checker goes through a snapshot once.
type checker struct {
	e    *engine
	r    *Report
	snap *pebble.Snapshot
}

func (c *checker) run(ctx context.Context) error {
	it, err := c.snap.NewIter(nil)
	if err != nil {
		return unavailable("check", err)
	}
	for it.First(); it.Valid(); it.Next() {
		if c.r.Records%1024 == 0 && ctx.Err() != nil {
			return errors.Join(ctx.Err(), it.Close())
		}
		v, err := it.ValueAndErr()
		if err != nil {
			c.r.add(it.Key(), err.Error())
			continue
		}
		c.r.Records++
		c.r.Bytes += int64(len(v))
		if err := c.record(it.Key(), v); err != nil {
			c.r.add(it.Key(), err.Error())
		}
	}
	if err := it.Error(); err != nil {
		// A block that cannot be read ends the reading: what follows it is not known.
		c.r.add([]byte{keyMeta}, err.Error())
		_ = it.Close()
		return nil
	}
	return it.Close()
}

func (c *checker) record(key, value []byte) error {
	if key[0] == keyCount {
		return (&sums{}).add(value)
	}
	v, err := open(key, value)
	if err != nil {
		return errors.New("the checksum is wrong")
	}
	switch key[0] {
	case keyMeta, keyBody, keyIntent:
		return nil
	case keyEndpoint:
		return json.Unmarshal(v, &serverless.Endpoint{})
	case keyPod:
		_, err := decodePod(c.e, key, v)
		return err
	case keyHold:
		return json.Unmarshal(v, &pods.Hold{})
	case keyVolume:
		return json.Unmarshal(v, &volumes.Volume{})
	case keyTemplate:
		return json.Unmarshal(v, &templates.Template{})
	case keyUse:
		return json.Unmarshal(v, &pods.Use{})
	case keySSHKeys:
		return json.Unmarshal(v, new([]string))
	case keyRegistry:
		if c.e.seals.key == nil {
			return nil
		}
		_, err := decodeCredential(c.e.seals, key, v)
		return err
	case keyAttempt:
		return json.Unmarshal(v, &serverless.Attempt{})
	case keyJob, keyEntry:
		return c.job(key, v)
	}
	return errors.New("it is of an unknown kind")
}

// job checks that what a job or a webhook refers to is there.
func (c *checker) job(key, value []byte) error {
	var s stored
	if err := s.decode(key, value); err != nil {
		return err
	}
	uid := s.note.Tag
	if s.state.Reason != serverless.Damaged { // such a job has none
		if err := c.there(bodyKey(uid, bodyInput)); err != nil {
			return err
		}
	}
	if hasOutput(s.note.Output) {
		if err := c.there(outputKey(uid, s.note.Output)); err != nil {
			return err
		}
	}
	if key[0] == keyEntry {
		return nil
	}
	for n := s.state.Drained; n < s.state.Chunks; n++ {
		if err := c.there(chunkKey(uid, s.note.Chunk, n)); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) there(key []byte) error {
	_, closer, err := c.snap.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return fmt.Errorf("%s %x is missing", kindNames[key[0]], key)
	}
	if err != nil {
		return err
	}
	return closer.Close()
}

package disk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/internal/jobindex"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/batches"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/joblog"
	"github.com/podyard/podyard/serverless/queue"
)

// A Report is the result of Check or Repair.
type Report struct {
	Records int64   // that were read
	Bytes   int64   // of the values of the records
	Faults  []Fault // what is lost
}

// A Fault is a lost record, a lost part of a record, or a lost part of a file.
type Fault struct {
	Key  string // kind and key of the record, or the name of the file
	Job  string // endpoint/id of the job that it belongs to, if known
	What string // what is damaged, or was done about it
}

// String returns the fault in one line.
func (f Fault) String() string {
	if f.Job != "" {
		return f.Key + ", of job " + f.Job + ": " + f.What
	}
	return f.Key + ": " + f.What
}

// Err returns nil if there are no faults. Otherwise the error has their number and the first
// one.
func (r *Report) Err() error {
	if len(r.Faults) == 0 {
		return nil
	}
	return problem.Newf(problem.Unavailable, "%w: %d faults, the first: %s", ErrDamaged, len(r.Faults), r.Faults[0])
}

// name returns the kind and the key of a record.
func name(key []byte) string {
	if _, ok := uidOfKey(key); ok || key[0] == keyGap || key[0] == keyLoss || key[0] == keyIntent || key[0] == keyKeyed || key[0] == keyHold {
		return fmt.Sprintf("%s %x", kindNames[key[0]], key)
	}
	return fmt.Sprintf("%s %q", kindNames[key[0]], key[1:])
}

// Check reads every record of the store as of one instant. The store stays in use meanwhile.
// It verifies the checksums, and that records that belong together exist. It does not change
// any record.
//
// Use the function [Check] for a directory that no Store has open.
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
	return r, e.inspection(snap, &r, func(finding) {}).run(ctx)
}

// A finding is a fault and what Repair does about it.
type finding struct {
	key  []byte
	what repair
	job  queue.Ref
}

// A repair is how Repair handles a lost record.
type repair uint8

const (
	leave  repair = iota
	remove        // remove the record
	note          // note that the record is known to be lost
	end           // end the job, because no worker can run it
	unseal        // remove the sealed part of the pod, which cannot be decrypted
)

// An inspection checks all records. It reads jobs and webhooks first, because they determine
// which payloads must exist.
type inspection struct {
	e      *engine
	from   pebble.Reader
	report *Report
	found  func(finding)
	uids   []uint64        // of jobs and webhooks, in order
	listed map[string]bool // payloads that are already in the report
	ended  map[uint64]bool // jobs that have ended as damaged, or will
}

func (e *engine) inspection(from pebble.Reader, r *Report, found func(finding)) *inspection {
	return &inspection{e: e, from: from, report: r, found: found, listed: map[string]bool{}, ended: map[uint64]bool{}}
}

func (i *inspection) run(ctx context.Context) error {
	for _, kind := range []byte{keyGap, keyLoss, keyJob, keyEntry, keyDead} {
		if err := i.kind(ctx, kind); err != nil {
			return err
		}
	}
	slices.Sort(i.uids)
	for _, kind := range []byte{
		keyMeta, keyEndpoint, keyPod, keyReservation, keyRegistry, keyVolume, keyTemplate, keySSHKeys, keyAccount, keySecret, keySchedule, keyBatch, keyJobLog, keyUse, keyKeyed, keyHold, keyCount,
		keyBody, keyAttempt, keyIntent,
	} {
		if err := i.kind(ctx, kind); err != nil {
			return err
		}
	}
	return nil
}

// fault adds a fault to the report, and passes the finding on for Repair.
func (i *inspection) fault(key []byte, job queue.Ref, what string, do repair) {
	f := Fault{Key: name(key), What: what}
	if job != (queue.Ref{}) {
		f.Job = job.Endpoint + "/" + string(job.ID)
	}
	i.report.Faults = append(i.report.Faults, f)
	i.found(finding{slices.Clone(key), do, job})
}

// kind checks all records of a kind.
func (i *inspection) kind(ctx context.Context, kind byte) error {
	orphan := uint64(0) // the last one that was reported
	err := eachRecord(i.from, []byte{kind}, func(key, value []byte, err error) error {
		if i.report.Records++; i.report.Records%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		i.report.Bytes += int64(len(value))
		uid, ok := uidOfKey(key)
		switch {
		case ok && (kind == keyBody || kind == keyAttempt) && !i.known(uid):
			if orphan != uid {
				orphan = uid
				i.fault(key, queue.Ref{}, "the job is lost, and this is left of it", leave)
			}
			i.found(finding{key: slices.Clone(key), what: remove})
		case err != nil && kind == keyBody:
			i.found(finding{key: slices.Clone(key), what: remove}) // the job or webhook that needs it is already reported
		case kind == keyGap, kind == keyLoss:
			i.noted(key, value, err)
		case err != nil:
			i.fault(key, queue.Ref{}, "its checksum is wrong", remove)
		default:
			i.legible(key, value)
		}
		return nil
	})
	if errors.Is(err, ErrDamaged) && i.e.err() == nil {
		i.report.Faults = append(i.report.Faults, Fault{Key: kindNames[kind] + "s", What: "they cannot be read to their end: " + err.Error()})
		return nil
	}
	return err
}

// legible checks the content of a record whose checksum is right.
func (i *inspection) legible(key, value []byte) {
	err := i.record(key, value)
	switch {
	case err == nil:
	case key[0] == keyPod && i.e.withoutSealed(value) != nil:
		i.fault(key, queue.Ref{}, "what was injected into it cannot be opened, and is lost", unseal)
	case key[0] == keySecret && errors.Is(err, ErrDamaged):
		i.fault(key, queue.Ref{}, "its value cannot be opened", remove)
	case key[0] == keyRegistry && errors.Is(err, ErrDamaged):
		i.fault(key, queue.Ref{}, "its credential cannot be opened", remove)
	default:
		i.fault(key, queue.Ref{}, err.Error(), remove)
	}
}

func (i *inspection) known(uid uint64) bool {
	_, ok := slices.BinarySearch(i.uids, uid)
	return ok
}

// noted checks a gap or a loss that was recorded earlier.
func (i *inspection) noted(key, value []byte, err error) {
	var g gap
	var l loss
	f := Fault{Key: name(key), What: "it cannot be read"}
	switch {
	case err != nil:
	case key[0] == keyGap && json.Unmarshal(value, &g) == nil:
		f = Fault{Key: g.Table, What: fmt.Sprintf("what it had of the keys from %x to %x could not be read", g.From, g.To)}
	case key[0] == keyLoss && json.Unmarshal(value, &l) == nil:
		if l.Known {
			return
		}
		f = Fault{Key: name(key[1:]), Job: l.Job, What: l.What}
	}
	i.report.Faults = append(i.report.Faults, f)
	i.found(finding{key: slices.Clone(key), what: remove})
}

// record decodes a record whose checksum is right.
func (i *inspection) record(key, v []byte) error {
	switch key[0] {
	case keyCount:
		return (&endpointCounters{}).add(v)
	case keyMeta, keyBody, keyIntent:
		return nil
	case keyEndpoint:
		return json.Unmarshal(v, &endpoints.Endpoint{})
	case keyPod:
		_, err := decodePod(i.e, key, v)
		return err
	case keyReservation:
		return json.Unmarshal(v, &pods.Reservation{})
	case keyVolume:
		return json.Unmarshal(v, &volumes.Volume{})
	case keyTemplate:
		return json.Unmarshal(v, &templates.Template{})
	case keyUse:
		return json.Unmarshal(v, &pods.Usage{})
	case keySSHKeys:
		return json.Unmarshal(v, new([]string))
	case keyKeyed:
		_, err := decodeKeyed(key, v)
		return err
	case keyHold:
		_, _, err := decodeHold(key, v)
		return err
	case keyAccount:
		return json.Unmarshal(v, &accounts.Key{})
	case keySecret:
		read := wholeSecret
		if i.e.seals.key == nil {
			read = decodeSecret
		}
		_, err := read(i.e, key, v)
		return err
	case keySchedule:
		_, err := decodeSchedule(i.e, key, v)
		return err
	case keyBatch:
		return json.Unmarshal(v, &batches.Batch{})
	case keyJobLog:
		return json.Unmarshal(v, &joblog.Log{})
	case keyRegistry:
		if i.e.seals.key == nil {
			return nil
		}
		_, err := decodeCredential(i.e.seals, key, v)
		return err
	case keyAttempt:
		return json.Unmarshal(v, &queue.Attempt{})
	}
	return i.job(key, v)
}

// job checks that the payloads of a job, a webhook or a dead letter exist.
func (i *inspection) job(key, value []byte) error {
	var s stored
	if err := s.decode(key, value); err != nil {
		return err
	}
	uid := s.note.Tag
	i.uids = append(i.uids, uid)
	i.ended[uid] = i.ended[uid] || !s.state.HasInput()
	if !i.ended[uid] { // an ended job has no payloads, and neither have webhooks of its earlier runs
		i.payload(&s, key, bodyKey(uid, bodyInput))
	}
	if s.marks&jobindex.HasExtra != 0 {
		i.payload(&s, key, bodyKey(uid, bodyExtras))
	}
	if hasOutput(s.note.Output) {
		i.payload(&s, key, outputKey(uid, s.note.Output))
	}
	if key[0] != keyJob {
		return nil
	}
	for n := range s.state.Attempt {
		i.payload(&s, key, tryKey(uid, s.state.Run, n+1))
	}
	for _, place := range s.state.LeasePlaces() {
		i.payload(&s, key, leaseKey(uid, place))
	}
	for n := s.state.Drained; n < s.state.Chunks; n++ {
		i.payload(&s, key, chunkKey(uid, s.note.Chunk, n))
	}
	return nil
}

// readable verifies a payload, and decrypts its sealed part.
func (i *inspection) readable(key []byte) error {
	record, closer, err := i.from.Get(key)
	if err != nil {
		return err
	}
	value, err := verify(key, record)
	if err == nil && key[len(uidKey(keyBody, 0))] == bodyExtras && i.e.seals.key != nil {
		err = decodeExtras(i.e.seals, key, value, &queue.Job{})
	}
	return errors.Join(err, closer.Close())
}

// payload checks a payload of a job. A payload that is known to be lost is no fault any more.
func (i *inspection) payload(s *stored, of, key []byte) {
	if i.readable(key) == nil {
		return
	}
	if _, closer, err := i.from.Get(lossKey(key)); err == nil {
		_ = closer.Close()
		return
	}
	what, do := "it is lost", note
	if of[0] == keyJob && s.state.Status == queue.InQueue && !isBody(key, bodyTry, bodyLease) { // no worker needs these logs
		what, do = "it is lost, and nobody can be given the job", end
		i.ended[s.note.Tag] = true
		i.found(finding{slices.Clone(key), note, s.ref}) // noted, because the webhook of the job refers to the payload
	}
	if i.listed[string(key)] { // reported for another run
		i.found(finding{slices.Clone(key), do, s.ref})
		return
	}
	i.listed[string(key)] = true
	i.fault(key, s.ref, what, do)
}

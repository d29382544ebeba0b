package disk

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/problem"
)

// The first byte of a key is its kind. Numbers are big-endian, so that keys are in numeric
// order.
const (
	keyMeta        = 'm' // name
	keyEndpoint    = 'e' // id
	keyPod         = 'p' // id
	keyReservation = 'h' // holder
	keyRegistry    = 'r' // id
	keyVolume      = 'v' // id
	keyTemplate    = 't' // id
	keySSHKeys     = 'k' // user
	keyAccount     = 'y' // id: an API key
	keySecret      = 'w' // id: the value of variables
	keySchedule    = 's' // id
	keyBatch       = 'q' // id
	keyJobLog      = 'f' // id: what a job has printed
	keyUse         = 'u' // kind, id, part if there is one, start: a usage record
	keyJob         = 'j' // uid: the state of a job
	keyBody        = 'b' // uid, kind, more: a payload of a job
	keyEntry       = 'o' // uid, run: an unsettled webhook
	keyAttempt     = 'a' // uid, number: an attempt to send a webhook
	keyKeyed       = 'n' // digest: a request with an Idempotency-Key
	keyDead        = 'd' // uid: a dead letter
	keyHold        = 'x' // uid, instant: a key that the worker of a job holds
	keyCount       = 'c' // endpoint: counters of deleted and retried jobs, as sums
	keyIntent      = 'i' // key of a payload that is stored before its job
	keyGap         = 'g' // first key: a range of keys that cannot be read
	keyLoss        = 'l' // key: a lost record
)

// The kinds of bodies.
const (
	bodyInput  = 0
	bodyOutput = 1 // version
	bodyChunk  = 2 // generation, number
	bodyExtras = 3
	bodyTry    = 4 // run, number: an attempt that was followed by another one
	bodyLease  = 5 // place: a lease after which the job was queued again
)

func textKey(kind byte, text string) []byte { return append([]byte{kind}, text...) }

func uidKey(kind byte, uid uint64) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, 24), kind), uid)
}

// uidOfKey returns the number of the job that a record belongs to, if any.
func uidOfKey(key []byte) (uid uint64, ok bool) {
	switch key[0] {
	case keyJob, keyBody, keyEntry, keyAttempt, keyDead:
		if len(key) >= 9 {
			return binary.BigEndian.Uint64(key[1:]), true
		}
	}
	return 0, false
}

func bodyKey(uid uint64, kind byte) []byte { return append(uidKey(keyBody, uid), kind) }

func outputKey(uid uint64, version uint32) []byte {
	return binary.BigEndian.AppendUint32(bodyKey(uid, bodyOutput), version)
}

func chunkKey(uid uint64, gen, n uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(bodyKey(uid, bodyChunk), gen), n)
}

// entryKey encodes the run in one byte as in version 1, or in four bytes above 255.
func entryKey(uid uint64, run uint32) []byte {
	if run <= math.MaxUint8 {
		return append(uidKey(keyEntry, uid), byte(run))
	}
	return binary.BigEndian.AppendUint32(uidKey(keyEntry, uid), run)
}

func attemptKey(uid, n uint64) []byte {
	return binary.BigEndian.AppendUint64(uidKey(keyAttempt, uid), n)
}

func tryKey(uid uint64, run uint32, n uint8) []byte {
	return append(binary.BigEndian.AppendUint32(bodyKey(uid, bodyTry), run), n)
}

func leaseKey(uid uint64, place uint8) []byte { return append(bodyKey(uid, bodyLease), place) }

// writtenOnce reports whether a key never has two values: that of a payload or of an attempt. A
// lease takes the place of an older one.
func writtenOnce(key []byte) bool {
	return key[0] == keyAttempt || key[0] == keyBody && !isBody(key, bodyLease)
}

// isBody reports whether the key of a payload is of one of these kinds.
func isBody(key []byte, kinds ...byte) bool {
	n := len(uidKey(keyBody, 0))
	return len(key) > n && bytes.IndexByte(kinds, key[n]) >= 0
}

// prefixRange returns the range of all keys with the prefix.
func prefixRange(prefix []byte) (from, to []byte) {
	to = append([]byte(nil), prefix...)
	for i := len(to) - 1; i >= 0; i-- {
		if to[i]++; to[i] != 0 {
			return prefix, to[:i+1]
		}
	}
	return prefix, nil
}

// checksumSize is the length of a checksum in bytes.
const checksumSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}

// put adds a record to a batch: the parts of its value, and a checksum over key and value.
func put(b *pebble.Batch, key []byte, value ...[]byte) {
	n := checksumSize
	for _, v := range value {
		n += len(v)
	}
	op := b.SetDeferred(len(key), n)
	copy(op.Key, key)
	at := op.Value
	for _, v := range value {
		at = at[copy(at, v):]
	}
	binary.LittleEndian.PutUint32(at, checksum(key, op.Value[:n-checksumSize]))
	// A batch in memory accepts every record.
	_ = op.Finish()
}

// verify checks the checksum that put added, and returns the value.
func verify(key, record []byte) ([]byte, error) {
	n := len(record) - checksumSize
	if n < 0 || checksum(key, record[:n]) != binary.LittleEndian.Uint32(record[n:]) {
		return nil, damaged(key)
	}
	return record[:n:n], nil
}

// ErrDamaged is wrapped by the error of a read whose data does not match its checksum.
var ErrDamaged = &problem.Error{Kind: problem.Unavailable, Permanent: true, Detail: "a record of the store is damaged"}

var kindNames = map[byte]string{
	keyMeta: "a setting of the store", keyEndpoint: "an endpoint", keyPod: "a pod", keyReservation: "what is held", keyRegistry: "a registry",
	keyVolume: "a network volume", keyTemplate: "a template", keySSHKeys: "the SSH keys of a user", keyAccount: "an API key", keySecret: "a secret", keySchedule: "a schedule", keyBatch: "a batch", keyJobLog: "what a job has printed", keyUse: "what was used", keyKeyed: "an Idempotency-Key",
	keyJob: "a job", keyBody: "a payload", keyEntry: "a webhook", keyAttempt: "the log of a webhook", keyDead: "a dead letter", keyHold: "a key that is held",
	keyCount: "a counter", keyIntent: "a payload on its way", keyGap: "a gap", keyLoss: "what was lost",
}

func damaged(key []byte) error {
	return problem.Newf(problem.Unavailable, "%w: %s, key %x", ErrDamaged, kindNames[key[0]], key)
}

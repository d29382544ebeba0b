package disk

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless/batches"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/schedules"
)

// Records of jobs and webhooks. A record that can be decoded is the same after encoding and
// decoding it again.
func FuzzStoredJob(f *testing.F) {
	s := everyField()
	f.Add(s.appendTo(nil))
	s.state.Run = 1<<32 - 1
	f.Add(s.appendTo(nil))
	f.Add((&stored{}).appendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s, again stored
		key := uidKey(keyJob, 77)
		if s.decode(key, b) != nil {
			return
		}
		if err := again.decode(key, s.appendTo(nil)); err != nil || s != again {
			t.Errorf("%+v is decoded again as %+v, %v", s, again, err)
		}
	})
}

// Outputs, and data for workers only.
func FuzzStoredPayload(f *testing.F) {
	head, payload := outputParts(&queue.Op{Payload: []byte(`"out"`), Error: "no"})
	f.Add(append(head, payload...))
	seals := sealer{key: testKey}
	key := bodyKey(1, bodyExtras)
	extras, err := encodeExtras(seals, key, &queue.Job{Webhook: "https://example.org/", Extra: []byte("{}")})
	must(f, err)
	f.Add(extras)
	traced, err := encodeExtras(seals, key, &queue.Job{Trace: queue.Trace{Parent: "p", State: "s"}})
	must(f, err)
	f.Add(traced)
	f.Fuzz(func(t *testing.T, b []byte) {
		if output, text, err := decodeOutput(key, b); err == nil {
			head, payload := outputParts(&queue.Op{Payload: output, Error: text})
			output2, text2, err := decodeOutput(key, append(head, payload...))
			if err != nil || !bytes.Equal(output, output2) || text != text2 {
				t.Errorf("%q, %q is decoded again as %q, %q, %v", output, text, output2, text2, err)
			}
		}
		var j, again queue.Job
		if decodeExtras(seals, key, b, &j) != nil {
			return
		}
		v, err := encodeExtras(seals, key, &j)
		must(t, err)
		if err := decodeExtras(seals, key, v, &again); err != nil || j.Webhook != again.Webhook || j.Trace != again.Trace || !bytes.Equal(j.Extra, again.Extra) {
			t.Errorf("%+v is decoded again as %+v, %v", j, again, err)
		}
	})
}

// stable decodes a JSON record, encodes it, and decodes it again.
func stable[T any](t *testing.T, b []byte) {
	t.Helper()
	v, err := decodeJSON[T](nil, nil, b)
	if err != nil {
		return
	}
	once, err := json.Marshal(v)
	if err != nil {
		return // a number that JSON cannot represent
	}
	again, err := decodeJSON[T](nil, nil, once)
	must(t, err)
	twice, err := json.Marshal(again)
	must(t, err)
	if diff := cmp.Diff(string(once), string(twice)); diff != "" {
		t.Errorf("decoded again (-once +twice):\n%s", diff)
	}
}

// Pods and all other JSON records.
func FuzzStoredJSON(f *testing.F) {
	for _, text := range []string{
		`{"ID":"p","Owner":"alice","Created":"2026-05-28T20:26:40Z","Sealed":"AAAA"}`, `{"From":"YQ==","To":"Yg==","Table":"000001.sst"}`,
		`{"Job":"echo/a","What":"it is lost","Known":true}`, `["ssh-ed25519 AAAA"]`, `{"At":1,"Err":"no"}`, `null`, `{"Used":[{}]}`,
	} {
		f.Add([]byte(text))
	}
	e := &engine{seals: sealer{key: testKey}}
	f.Fuzz(func(t *testing.T, b []byte) {
		stable[endpoints.Endpoint](t, b)
		stable[pods.Reservation](t, b)
		stable[volumes.Volume](t, b)
		stable[templates.Template](t, b)
		stable[pods.Usage](t, b)
		stable[accounts.Key](t, b)
		stable[schedules.Schedule](t, b)
		stable[batches.Batch](t, b)
		stable[[]string](t, b)
		stable[queue.Attempt](t, b)
		stable[queue.JobLease](t, b)
		stable[gap](t, b)
		stable[loss](t, b)
		key := textKey(keyPod, "p")
		p, err := decodePod(e, key, b)
		if err != nil || p == nil {
			return
		}
		v, err := encodePod(e.seals, key, p)
		if err != nil {
			return
		}
		again, err := decodePod(e, key, v)
		must(t, err)
		if diff := cmp.Diff(p, again); diff != "" {
			t.Errorf("a pod decoded again (-once +twice):\n%s", diff)
		}
	})
}

// Registries, whose credentials are encrypted.
func FuzzStoredRegistry(f *testing.F) {
	seals, key := sealer{key: testKey}, textKey(keyRegistry, "r")
	v, err := encodeRegistry(seals, key, &registries.Registry{ID: "r", Name: "mine"}, registries.Credential{Username: "u", Password: "p"})
	must(f, err)
	f.Add(v)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRegistry(nil, key, b)
		c, cerr := decodeCredential(seals, key, b)
		if err != nil || cerr != nil || r == nil {
			return
		}
		v, err := encodeRegistry(seals, key, r, c)
		must(t, err)
		again, err := decodeRegistry(nil, key, v)
		must(t, err)
		c2, err := decodeCredential(seals, key, v)
		must(t, err)
		if *r != *again || c != c2 {
			t.Errorf("%+v is decoded again as %+v", *r, *again)
		}
	})
}

// Counters, and records with their checksums.
func FuzzStoredCounter(f *testing.F) {
	f.Add((&endpointCounters{1, 2, 3}).bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		var s endpointCounters
		if s.add(b) == nil && !bytes.Equal(s.bytes(), b) {
			t.Errorf("%x is encoded as %x", b, s.bytes())
		}
		m, err := counterMerger().Merge(nil, b)
		must(t, err)
		_, _, err = m.Finish(true)
		must(t, err)
		if value, err := verify([]byte("key"), b); err == nil && len(value) != len(b)-checksumSize {
			t.Errorf("%x is verified as %x", b, value)
		}
	})
}

// Logs are read and rewritten, whatever they contain.
func FuzzLogFile(f *testing.F) {
	var b pebble.Batch
	put(&b, uidKey(keyJob, 1), (&stored{}).appendTo(nil))
	log := func(batch []byte) []byte {
		c := append([]byte{0, 0, 0, 0, byte(len(batch)), byte(len(batch) >> 8), fullChunk}, batch...)
		binary.LittleEndian.PutUint32(c, masked(crc32.Checksum(c[6:], castagnoli)))
		return c
	}
	one := log(b.Repr())
	f.Add(one)
	f.Add(append(append(bytes.Clone(one), 1, 2, 3), one...))
	f.Fuzz(func(t *testing.T, log []byte) {
		fs := vfs.NewMem()
		must(t, fs.MkdirAll("store", 0o700))
		name := "store/000007.log"
		writeFile(t, fs, name, log)
		s := &Store{dir: "store", opts: Options{fs: fs}, report: &Report{}}
		must(t, s.verifyLogs())
		s.report = nil
		must(t, s.verifyLogs())
	})
}

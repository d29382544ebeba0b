package disk

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/jobindex"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
)

// everyField returns a record with a different value in each field.
func everyField() stored {
	return stored{
		ref: queue.Ref{Endpoint: "echo", ID: "job-1"}, owner: "alice",
		state: queue.State{
			Status: queue.Failed, Flags: queue.HasWebhook, Reason: queue.ExecutionTimedOut, Deliveries: 2, Restarts: 4, Run: 5, Priority: queue.DefaultPriority,
			Seq: 600, Token: 7<<32 | 8, Worker: "w", Lost: "v",
			Submitted: at, Queued: at + 1, Started: at + 2, Finished: at + 3, LeaseUntil: at + 4, RunUntil: at + 5, Expires: at + 6,
			Terms: queue.Terms{ExecTimeout: 9 * time.Second, Retain: 10 * time.Second}, Chunks: 300, Drained: 299, Stream: 12, InBytes: unknownSize,
		},
		note: jobindex.Metadata{Tag: 77, Output: 3, Chunk: 2}, marks: jobindex.HasExtra,
		tries: 1, due: at + 7,
	}
}

// golden is everyField in version 1 of the format.
const golden = "046563686f056a6f622d3105616c69636501770176" + "03040202040508" + "d8048880808070ac02ab02030201" +
	"80a0a484ce6782a0a484ce6784a0a484ce6786a0a484ce6788a0a484ce678aa0a484ce678ca0a484ce67" + "d08c01a09c01188ea0a484ce67"

// Directories of earlier versions must stay readable forever.
func TestRecordsAreWrittenAsEver(t *testing.T) {
	late, last := everyField(), everyField()
	late.state.Run, last.state.Run = 0x105, 1<<32-1
	first, rest := everyField(), everyField()
	first.state.Priority = 9
	leased := everyField()
	leased.state.Leases, leased.state.FirstChunk = 7, at+5
	rest.key, rest.state.Delayed, rest.state.Attempt = "key", true, 3
	rest.state.Retry = queue.RetryPolicy{Attempts: 20, Timeouts: true, Factor: 1.5, Jitter: 0.25, Delay: time.Second, MaxDelay: time.Minute}
	for _, c := range []struct {
		name   string
		record stored
		want   string
	}{
		{"as version 1 wrote it", everyField(), golden},
		{"a run above 255, since version 2", late, golden + "01"},
		{"the last run", last, strings.Replace(golden, "020405", "0204ff", 1) + "ffffff07"},
		{"a priority, since version 3", first, golden + "00" + "01" + "09"},
		{"all that version 3 added", rest, golden + "00" + "1e" + "036b6579" + "03" + "1401" + "3fc00000" + "3e800000" + "d00f" + "c0a907"},
		{"all that version 4 added", leased, golden + "00" + "8006" + "07" + "06"},
	} {
		got := hex.EncodeToString(c.record.appendTo(nil))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		written, err := hex.DecodeString(c.want)
		must(t, err)
		var read stored
		must(t, read.decode(uidKey(keyJob, 77), written))
		if read != c.record {
			t.Errorf("%s: read as %+v, want %+v", c.name, read, c.record)
		}
	}
}

// Members that a state gets later must be stored, too.
func TestEveryMemberOfAStateIsInItsRecord(t *testing.T) {
	written := everyField()
	suite.Fill(t, &written.state)
	written.state.Status, written.state.Priority = queue.Failed, queue.MaxPriority
	var read stored
	must(t, read.decode(uidKey(keyJob, 77), written.appendTo(nil)))
	if read != written {
		t.Errorf("%+v is read as %+v", written, read)
	}
}

func TestLaterNumbersOfAStateAreKept(t *testing.T) {
	for _, c := range []struct {
		written []int64
		known   int // how many the reader knows
		want    []int64
		bad     bool
	}{
		{[]int64{7, -1}, 3, []int64{7, -1, 0}, false},
		{nil, 2, []int64{0, 0}, false},
		{[]int64{7, 8}, 1, []int64{0}, true}, // the format of the directory is a later one
	} {
		r := reader{b: appendNumbers(nil, c.written)}
		got := make([]int64, c.known)
		r.numbers(got)
		if !slices.Equal(got, c.want) || r.bad != c.bad || !c.bad && len(r.b) > 0 {
			t.Errorf("%v is read as %v with %d bytes left, damaged: %t, want %v, damaged: %t", c.written, got, len(r.b), r.bad, c.want, c.bad)
		}
	}
}

// A record of extras without a trace context is as version 1 wrote it.
func TestExtrasAreWrittenAsEver(t *testing.T) {
	key := bodyKey(1, bodyExtras)
	for want, j := range map[string]queue.Job{
		"0468743a2f":                                   {Webhook: "ht:/"},
		"8000" + "03" + "00" + "0170" + "00":           {Trace: queue.Trace{Parent: "p"}},
		"8000" + "03" + "0468743a2f" + "0170" + "0173": {Webhook: "ht:/", Trace: queue.Trace{Parent: "p", State: "s"}},
	} {
		b, err := encodeExtras(sealer{}, key, &j)
		must(t, err)
		if got := hex.EncodeToString(b); got != want {
			t.Errorf("extras of %+v are written as %s, want %s", j, got, want)
		}
		for _, later := range []string{"", "04" + "00" + "0170" + "00" + "0178"} { // with a text of a later version
			if later != "" {
				b, err = hex.DecodeString("8000" + later)
				must(t, err)
				j = queue.Job{Trace: queue.Trace{Parent: "p"}}
			}
			var read queue.Job
			must(t, decodeExtras(sealer{}, key, b, &read))
			if diff := cmp.Diff(j, read); diff != "" {
				t.Errorf("%x is read as (-want +got):\n%s", b, diff)
			}
		}
	}
	var sealed queue.Job
	seals := sealer{key: testKey}
	b, err := encodeExtras(seals, key, &queue.Job{Trace: queue.Trace{Parent: "p"}, Extra: []byte("{}")})
	must(t, err)
	must(t, decodeExtras(seals, key, b, &sealed))
	if string(sealed.Extra) != "{}" || sealed.Trace.Parent != "p" {
		t.Errorf("read as %+v, want a trace context and an Extra", sealed)
	}
	if err := decodeExtras(sealer{}, key, []byte("\x80\x00\x09\x00"), &sealed); err == nil {
		t.Error("extras that end early are read, want that they are damaged")
	}
}

// A directory of version 1 is upgraded. Its jobs can then have any run number.
func TestADirectoryOfTheFirstVersionIsTakenOver(t *testing.T) {
	s := memStore(t)
	ctx := t.Context()
	j := newJob("a")
	j.Run, j.Webhook, j.Flags = 255, "https://example.org/", queue.HasWebhook
	must(t, s.Jobs().Enqueue(ctx, []queue.Job{j}))
	e, err := s.engine()
	must(t, err)
	must(t, e.commit(func(b *pebble.Batch) { putNumber(b, metaFormat, 1) }, nil))
	fail := func() {
		c := claimOne(t, s.Jobs(), "w")
		must(t, applyOne(t, s.Jobs(), queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Worker: "w", Token: c.Token, Status: queue.Failed}).Err)
	}
	s = reopen(t, s)
	for range 2 {
		fail()
		must(t, applyOne(t, s.Jobs(), queue.Op{Ref: j.Ref, Kind: queue.OpRetry}).Err)
	}
	fail()
	s = reopen(t, s)
	e, err = s.engine()
	must(t, err)
	if v, _, err := e.number(metaFormat); err != nil || v != formatVersion {
		t.Errorf("the format is %d, %v, want %d", v, err, formatVersion)
	}
	if got := getJob(t, s.Jobs(), j.Ref); got.Run != 257 {
		t.Errorf("Run = %d, want 257", got.Run)
	}
	ds, err := s.Jobs().Deliveries(ctx, at+10, at+100, 10)
	must(t, err)
	runs := map[uint32]string{}
	for _, d := range ds {
		runs[d.Job.Run] = d.ID
	}
	if diff := cmp.Diff(map[uint32]string{255: "msg_a_255", 256: "msg_a_256", 257: "msg_a_257"}, runs); diff != "" {
		t.Errorf("deliveries by run (-want +got):\n%s", diff)
	}
	r, err := s.Check(ctx)
	must(t, err)
	must(t, r.Err())
}

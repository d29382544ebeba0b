package console

import (
	"encoding/json"
	"testing"
	"time"
)

// What counts say of all times until now becomes percentiles of each minute.
func TestLatencyHasThePercentilesOfEachMinuteAndNoneOfOneWithoutJobs(t *testing.T) {
	ends := []int64{10, 100, 1000}
	var l latency
	add := func(waited, ran []uint64) { l.add(ends, waited, ran) }
	add([]uint64{500, 0, 0, 0}, []uint64{0, 0, 0, 7}) // before the first minute
	if b := l.body(); b != nil {
		t.Errorf("before the first minute the latency is %+v", b)
	}
	add([]uint64{505, 4, 1, 0}, []uint64{0, 10, 0, 7})
	add([]uint64{505, 4, 1, 0}, []uint64{0, 10, 0, 8})
	got, err := json.Marshal(l.body())
	const want = `{"every":60,"waited":{"p50":[10,null],"p90":[100,null]},"ran":{"p50":[100,1000],"p90":[100,1000]}}`
	if err != nil || string(got) != want {
		t.Errorf("the latency is %s, %v, want %s", got, err, want)
	}
	for range 2 * minutes {
		add([]uint64{505, 4, 1, 0}, []uint64{0, 10, 0, 8})
	}
	if b := l.body(); len(b.Waited.P50) != minutes || len(b.Ran.P90) != minutes || b.Ran.P50[0] != nil {
		t.Errorf("two hours later the latency has %d minutes, want the last %d without jobs", len(b.Waited.P50), minutes)
	}
}

// A minute is a minute of samples. An endpoint that JobTimes does not know has no latency.
func TestLatencyIsReadOnceAMinute(t *testing.T) {
	reads, ends := 0, []int64{10}
	times := func(endpoint string) ([]int64, []uint64, []uint64) {
		if endpoint == "unknown" {
			return nil, nil, nil
		}
		reads++
		return ends, []uint64{uint64(reads), 0}, []uint64{0, 0}
	}
	h := history{times: times}
	h.init()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for range 2*latencyEvery + 1 {
		h.add(now, now, "e", sample{})
		h.add(now, now, "unknown", sample{})
	}
	if b := h.read("e").Latency; reads != 3 || b == nil || len(b.Waited.P50) != 2 || *b.Waited.P50[0] != 10 || b.Ran.P50[0] != nil {
		t.Errorf("after two minutes and %d reads the latency is %+v", reads, b)
	}
	if b := h.read("unknown").Latency; b != nil {
		t.Errorf("an endpoint without times has a latency: %+v", b)
	}
}

package httpapi

import (
	"testing"

	"github.com/podyard/podyard/serverless"
)

// A part of small items allocates about its own size, and not once per item.
func TestAPartOfManyItemsIsWrittenWithoutAnAllocationForEach(t *testing.T) {
	for _, item := range []string{`{"output":1}`, `{"output":1,"metrics":{}}`, `{"output":"metrics"}`} {
		p := serverless.StreamPart{Items: make([][]byte, 1000)}
		for i := range p.Items {
			p.Items[i] = []byte(item)
		}
		for _, array := range []bool{false, true} {
			if n := testing.AllocsPerRun(5, func() { appendPart(p, array) }); n > 20 {
				t.Errorf("1000 items %s: %v allocations (array %t), want at most 20", item, n, array)
			}
		}
	}
}

func TestMetricsOfAnItemAreFoundUnderEveryWayToWriteTheirName(t *testing.T) {
	for _, tt := range []struct{ item, array, envelope string }{
		{`{"output":1}`, `[{"output":1,"metrics":{}}]`, `[{"output":1}]`},
		{`{"output":"metrics"}`, `[{"output":"metrics","metrics":{}}]`, `[{"output":"metrics"}]`},
		{`{"output":{"metrics":5}}`, `[{"output":{"metrics":5},"metrics":{}}]`, `[{"output":{"metrics":5}}]`},
		{`{"metrics":{"ms":1},"output":1}`, `[{"metrics":{"ms":1},"output":1}]`, `[{"metrics":{"ms":1},"output":1}]`},
		{`{"output":1,"\u006detrics":{}}`, `[{"output":1,"\u006detrics":{}}]`, `[{"output":1,"\u006detrics":{}}]`},
		{`{"output":1,"metrics":"fast"}`, `[{"output":1,"metrics":{}}]`, `[{"output":1}]`},
		{`{"output":1,"\u006detrics":null}`, `[{"output":1,"metrics":{}}]`, `[{"output":1}]`},
	} {
		if got := string(appendItems(nil, [][]byte{[]byte(tt.item)}, true)); got != tt.array {
			t.Errorf("%s in an array: %s, want %s", tt.item, got, tt.array)
		}
		if got := string(appendItems(nil, [][]byte{[]byte(tt.item)}, false)); got != tt.envelope {
			t.Errorf("%s in an envelope: %s, want %s", tt.item, got, tt.envelope)
		}
	}
}

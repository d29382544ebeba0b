package jobindex

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/podyard/podyard/serverless/queue"
)

// A minHeap has the same first value as a sorted list, whatever is put in, moved, taken out and
// forgotten, and knows where each value is.
func TestAHeapHasTheValueWithTheLowestTurnOnTop(t *testing.T) {
	type value struct {
		turn queue.Turn
		pos  int32
		in   bool
	}
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		h, values := minHeap[*value]{}, make([]*value, 1+r.IntN(60))
		for i := range values {
			values[i] = &value{}
		}
		for step := range 2000 {
			i := r.IntN(len(values))
			v := values[i]
			if r.IntN(10) == 0 {
				h.forget(&v.pos)
				values[i] = &value{}
			} else {
				v.turn, v.in = queue.Turn{Seq: r.Uint64N(100), Serial: uint64(step)}, r.IntN(3) > 0
				h.set(v, &v.pos, v.turn, v.in)
			}
			in := slices.DeleteFunc(slices.Clone(values), func(v *value) bool { return !v.in })
			if h.empty() != (len(in) == 0) {
				t.Fatalf("seed %d, step %d: empty is %v with %d values", seed, step, h.empty(), len(in))
			}
			for _, v := range in {
				if e := h.list[v.pos-1]; e.value != v || e.turn != v.turn || v.turn.Before(h.list[0].turn) {
					t.Fatalf("seed %d, step %d: position %d has %v, want %v, which is not before the first one, %v", seed, step, v.pos, e.turn, v.turn, h.list[0].turn)
				}
			}
			if want := max(len(in), min(len(h.list), 1)); len(h.list) != want {
				t.Fatalf("seed %d, step %d: %d elements for %d values", seed, step, len(h.list), len(in))
			}
		}
	}
}

package queue_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// The results of all three are what whole numbers without a limit would give, and where that does not
// fit, the nearest value that does.
func TestArithmeticOnInstantsSaturates(t *testing.T) {
	instants := []queue.Instant{0, 1, -1, 1_780_000_000_000, 253_402_300_799_999, -62_135_596_800_000, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, math.MinInt64 + 1}
	spans := []time.Duration{0, time.Millisecond, -time.Millisecond, time.Hour, -time.Hour, math.MaxInt64, math.MinInt64}
	ms := big.NewInt(int64(time.Millisecond))
	for _, a := range instants {
		for _, b := range instants {
			diff := new(big.Int).Sub(big.NewInt(int64(a)), big.NewInt(int64(b)))
			if got, want := int64(a.Sub(b)), nearest(diff.Mul(diff, ms)); got != want {
				t.Errorf("%d.Sub(%d) = %d ns, want %d", a, b, got, want)
			}
		}
		for _, d := range spans {
			sum := new(big.Int).Add(big.NewInt(int64(a)), big.NewInt(d.Milliseconds()))
			if got, want := int64(a.Add(d)), nearest(sum); got != want {
				t.Errorf("%d.Add(%v) = %d, want %d", a, d, got, want)
			}
		}
	}
	for _, seconds := range []int64{0, 253_402_300_799, -62_135_596_800, math.MaxInt64 / 1000, math.MaxInt64/1000 + 1, math.MinInt64 / 1000, math.MinInt64/1000 - 1, 1 << 60, -1 << 60} {
		got := queue.At(time.Unix(seconds, 0))
		exact := new(big.Int).Mul(big.NewInt(seconds), big.NewInt(1000))
		if off := new(big.Int).Sub(big.NewInt(int64(got)), big.NewInt(nearest(exact))); off.CmpAbs(big.NewInt(1000)) > 0 {
			t.Errorf("At of the second %d = %d, want %d", seconds, got, nearest(exact))
		}
	}
}

func nearest(n *big.Int) int64 {
	switch {
	case n.IsInt64():
		return n.Int64()
	case n.Sign() > 0:
		return math.MaxInt64
	}
	return math.MinInt64
}

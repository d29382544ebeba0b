package supervise

import "testing"

func TestAProgramNamedLikeAStatLineIsRead(t *testing.T) {
	line := "7 (a) S 1 2 (b) R 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25"
	got, ok := parseStat(7, []byte(line))
	want := task{pid: 7, parent: 3, state: 'R', ticks: 13 + 14 + 15 + 16, start: 21, pages: 23}
	// After the last parenthesis, field 3 is R and field 4 is 3: each number is that of its
	// field less one.
	if !ok || got != want {
		t.Errorf("parseStat = %+v, %t, want %+v", got, ok, want)
	}
}

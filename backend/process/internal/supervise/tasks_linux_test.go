package supervise

import "testing"

func TestAProgramNamedLikeAStatLineIsRead(t *testing.T) {
	line := "7 (a) S 1 2 (b) R 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25"
	got, ok := parseStat(7, []byte(line))
	want := task{pid: 7, parent: 3, group: 4, state: 'R', threads: 19, ticks: 13 + 14 + 15 + 16, start: 21, pages: 23}
	// After the last parenthesis, field 3 is R and field 4 is 3: each number is that of its
	// field less one.
	if !ok || got != want {
		t.Errorf("parseStat = %+v, %t, want %+v", got, ok, want)
	}
}

// A pod would outlive its end with such a process.
func TestAProcessWhoseFirstThreadHasEndedIsADescendantWhileOthersRun(t *testing.T) {
	for _, tt := range []struct {
		threads string
		want    int
	}{{"0", 0}, {"1", 0}, {"2", 1}} {
		line := "7 (a) Z 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 " + tt.threads + " 0 100 0 0"
		z, ok := parseStat(7, []byte(line))
		if got := descendants([]task{z}, 1); !ok || len(got) != tt.want {
			t.Errorf("with %s threads %d descendants, %t, want %d", tt.threads, len(got), ok, tt.want)
		}
	}
}

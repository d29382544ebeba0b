package config

import (
	"log/slog"
	"os"
	"testing"
)

func TestAServerThatKeepsNothingLeavesNothing(t *testing.T) {
	tmp := t.TempDir()
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(name, tmp)
	}
	one, err := tempDir(t.Context(), false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	other, err := tempDir(t.Context(), false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for i, dir := range []string{one, other} {
		if err := removeTempDir(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		left, err := os.ReadDir(tmp)
		if err != nil || len(left) != 1-i {
			t.Errorf("after the end of %d of 2 servers %v is left, error %v; want the place until the last one has ended", i+1, left, err)
		}
	}
}

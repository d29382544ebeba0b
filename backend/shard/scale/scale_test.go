package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func TestThePageHasTheTablesOfTheProgram(t *testing.T) {
	page, err := os.ReadFile("../../../docs/scale.md")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := tables(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	for table := range strings.SplitSeq(strings.TrimSpace(out.String()), "\n\n") {
		if !strings.Contains(string(page), table+"\n") {
			t.Errorf("docs/scale.md does not have this table of go run ./backend/shard/scale:\n%s", table)
		}
	}
}

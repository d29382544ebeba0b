package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/postgrestest"
)

var postgresql postgrestest.Server

func TestMain(m *testing.M) {
	if system := os.Getenv(cellSystemVar); system != "" {
		if err := runCellWorker(system); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(postgresql.Main(m))
}

func TestTheLongMeasurements(t *testing.T) {
	for name, s := range map[string]settings{
		"beside an old transaction": {oldFor: 100 * time.Millisecond},
		"with many jobs queued":     {deepBy: 3000, time: 50 * time.Millisecond, rounds: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			s.database = postgresql.Database(t)
			if err := run(t.Context(), &out, s); err != nil || strings.Count(out.String(), "\n") < 2 {
				t.Errorf("%v\n%s", err, &out)
			}
		})
	}
}

// The figures mean nothing here: the database of tests does not wait for the disk.
func TestEveryFigureIsMeasured(t *testing.T) {
	var out bytes.Buffer
	s := settings{database: postgresql.Database(t), time: 50 * time.Millisecond, rounds: 1, backlog: 1000}
	if err := run(t.Context(), &out, s); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	t.Logf("\n%s", &out)
	if n := strings.Count(out.String(), "\n"); n != 19 {
		t.Errorf("%d lines, want a head, 15 figures and three lines of parts", n)
	}
}

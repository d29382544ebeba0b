package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/podyard/podyard/problem/idempotency"
)

func TestRecordsOfKeysDoNotPileUp(t *testing.T) {
	var k keyed
	start := time.Unix(1_780_000_000, 0)
	const perDay, days = 100, 5
	for day := range days {
		for i := range perDay {
			id := fmt.Sprintf("%d-%d", day, i)
			r := idempotency.Record{Request: *idempotency.NewRequest(id, nil), ID: id, At: start.Add(time.Duration(day) * idempotency.Retention)}
			if err := k.addKeyed(func() error { return nil }, r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(k.records) != perDay || len(k.order) != perDay {
		t.Errorf("%d records in an order of %d after %d days, want the %d of the last one", len(k.records), len(k.order), days, perDay)
	}
}

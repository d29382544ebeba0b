// Package batchestest is what every batches.Store must do.
package batchestest

import (
	"slices"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/batches"
)

// TestStore runs every rule on a store of its own that open returns: empty, and closed
// by a cleanup of t if it must be.
func TestStore(t *testing.T, open func(t *testing.T) batches.Store) {
	suite.Test(t, slices.Concat(suite.RecordRules[batches.Store](records), suite.UpdateRules[batches.Store](records)), open)
}

var records = suite.Records[batches.Batch]{
	New: batch,
	Bare: func(id, owner string, created time.Time) batches.Batch {
		return batches.Batch{ID: id, Owner: owner, Endpoint: "e", Created: created, Status: batches.Draft}
	},
	ID:    func(b batches.Batch) string { return b.ID },
	Spoil: func(b *batches.Batch) { b.Outcomes[0] = 'x' },
	Change: func(b *batches.Batch) {
		b.Status, b.Outcomes, b.Ended, b.Name = batches.Cancelled, b.Outcomes[:1], time.Time{}, ""
	},
	Count: func(b *batches.Batch) { b.Moved++ },

	ErrExists: batches.ErrExists, ErrNotFound: batches.ErrNotFound,
}

func batch(id, owner string, created time.Time) batches.Batch {
	return batches.Batch{
		ID: id, Owner: owner, Endpoint: "echo", Created: created, Name: "\"a\" \x01 €", Webhook: "https://a.example/?b=c",
		Status: batches.Finalized, Finalized: created.Add(time.Hour), Outcomes: []byte("pcfxtedr"), Moved: 8,
		Ended: created.Add(2 * time.Hour), Cleaned: true,
		Notice: batches.Notice{Tries: 2, Next: created.Add(3 * time.Hour), Settled: true},
	}
}

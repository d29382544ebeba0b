// Package volumestest is what every volumes.Store must do.
package volumestest

import (
	"slices"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/volumes"
)

// TestStore runs every rule on a store of its own that open returns: empty, and closed
// by a cleanup of t if it must be.
func TestStore(t *testing.T, open func(t *testing.T) volumes.Store) {
	suite.Test(t, slices.Concat(suite.RecordRules[volumes.Store](records), suite.UpdateRules[volumes.Store](records)), open)
}

var records = suite.Records[volumes.Volume]{
	New: func(id, owner string, created time.Time) volumes.Volume {
		return volumes.Volume{
			ID: id, Owner: owner, Name: "näme \"\x01\"", Size: 20, DataCenter: "US-TX-3", Type: catalog.HighPerformance, Created: created,
			Sizes:  []volumes.SizeSpan{{From: created, Size: 10}, {From: created.Add(time.Hour), Size: 20}},
			Server: "server-1",
		}
	},
	Bare: func(id, owner string, created time.Time) volumes.Volume {
		return volumes.Volume{ID: id, Owner: owner, Created: created}
	},
	ID:     func(v volumes.Volume) string { return v.ID },
	Spoil:  func(v *volumes.Volume) { v.Sizes[0].Size = 99 },
	Change: func(v *volumes.Volume) { v.Name, v.Size, v.Server, v.Deleted = "new", 4096, "server-2", true },
	Count:  func(v *volumes.Volume) { v.Size++ },

	ErrExists: volumes.ErrExists, ErrNotFound: volumes.ErrNotFound,
}

package cron

import (
	"time"
	_ "time/tzdata" // so that zones do not depend on the host (docs/decisions.md 42)

	"github.com/podyard/podyard/problem"
)

// maxZone is the most bytes of the name of a zone.
const maxZone = 64

// Zone returns a time zone of the IANA database by its name, such as Europe/Berlin, or UTC.
// The error of an unknown zone has the kind problem.Invalid. Local is no name here, because it
// differs from host to host.
func Zone(name string) (*time.Location, error) {
	// Names of the database begin with a capital. Others are files beside it on some hosts.
	if name != "" && len(name) <= maxZone && name[0] >= 'A' && name[0] <= 'Z' && name != "Local" {
		if zone, err := time.LoadLocation(name); err == nil {
			return zone, nil
		}
	}
	return nil, problem.Newf(problem.Invalid, "%.70q is no time zone of the IANA database, such as Europe/Berlin", name)
}

package disk

import (
	"encoding/json"
	"fmt"

	"github.com/podyard/podyard/serverless/schedules"
)

// A storedSchedule is a schedule as it is on disk.
type storedSchedule struct {
	*schedules.Schedule
	Sealed []byte `json:",omitempty"` // Schedule.Secret
}

func encodeSchedule(seals sealer, key []byte, v *schedules.Schedule) ([]byte, error) {
	r := storedSchedule{Schedule: v}
	if len(v.Secret) > 0 {
		plain := *v
		plain.Secret = nil
		r.Schedule = &plain
		var err error
		if r.Sealed, err = seals.seal(key, v.Secret); err != nil {
			return nil, err
		}
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("disk: encode schedule %q: %w", v.ID, err)
	}
	return b, nil
}

func decodeSchedule(e *engine, key, value []byte) (*schedules.Schedule, error) {
	r := storedSchedule{Schedule: &schedules.Schedule{}}
	if err := json.Unmarshal(value, &r); err != nil || r.Sealed == nil {
		return r.Schedule, err
	}
	var err error
	r.Secret, err = e.seals.open(key, r.Sealed)
	return r.Schedule, err
}

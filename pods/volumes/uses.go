package volumes

import (
	"context"
	"time"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
)

// Uses returns what the volumes of owner have cost and cost, one use for each size.
func (s *Service) Uses(ctx context.Context, owner string) ([]pods.Use, error) {
	list, err := s.List(ctx, owner)
	if err != nil {
		return nil, err
	}
	var uses []pods.Use
	for _, v := range list {
		uses = append(uses, s.uses(v, time.Time{})...)
	}
	return uses, nil
}

// uses ends the last size of v at end; zero: it goes on.
func (s *Service) uses(v Volume, end time.Time) []pods.Use {
	uses := make([]pods.Use, 0, len(v.Sizes))
	for i, z := range v.Sizes {
		u := pods.Use{Owner: v.Owner, Kind: pods.VolumeUse, ID: v.ID, From: z.From, To: end}
		if i+1 < len(v.Sizes) {
			u.To = v.Sizes[i+1].From
		}
		if v.Type == catalog.HighPerformance {
			u.HighPerformance = s.catalog.Storage.HighPerformance.Hourly(z.Size)
		} else {
			u.Standard = s.catalog.Storage.Standard.Hourly(z.Size)
		}
		uses = append(uses, u)
	}
	return uses
}

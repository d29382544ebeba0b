package volumes

import (
	"context"
	"time"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
)

// Usage returns the past and present usages of the volumes of owner, one for each size.
func (s *Service) Usage(ctx context.Context, owner string) ([]pods.Usage, error) {
	list, err := s.List(ctx, owner)
	if err != nil {
		return nil, err
	}
	var uses []pods.Usage
	for _, v := range list {
		uses = append(uses, s.usageOf(v, time.Time{})...)
	}
	return uses, nil
}

// usageOf returns the usages of v. The last size ends at end; zero: it has not ended.
func (s *Service) usageOf(v Volume, end time.Time) []pods.Usage {
	uses := make([]pods.Usage, 0, len(v.Sizes))
	for i, z := range v.Sizes {
		u := pods.Usage{Owner: v.Owner, Kind: pods.VolumeUsage, ID: v.ID, From: z.From, To: end}
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

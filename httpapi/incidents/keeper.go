package incidents

import (
	"context"
	"log/slog"
	"time"
)

// keepFor is how long an incident stays after it was seen last, so that one which comes and goes with each
// worker is one incident.
const keepFor = 15 * time.Second

// A Keeper remembers incidents: since when each lasts. The zero value works. It is not safe for
// concurrent use.
type Keeper struct {
	known map[string]*kept
}

type kept struct {
	Incident

	seen time.Time
}

// Update takes what is wrong at an instant, and returns the list to show. logger gets a line when an
// incident begins and one when it is over.
func (k *Keeper) Update(ctx context.Context, now time.Time, list []Incident, logger *slog.Logger) []Incident {
	if k.known == nil {
		k.known = map[string]*kept{}
	}
	for _, i := range list {
		old := k.known[i.Key()]
		switch {
		case old != nil:
			i.Since = old.Since
		default:
			if i.Since.IsZero() || i.Since.After(now) {
				i.Since = now
			}
			logger.LogAttrs(ctx, level(i.Severity), "incident", i.attrs()...)
		}
		k.known[i.Key()] = &kept{i, now}
	}
	return k.rest(ctx, now, logger)
}

// rest removes what is over and returns the others.
func (k *Keeper) rest(ctx context.Context, now time.Time, logger *slog.Logger) (list []Incident) {
	for key, x := range k.known {
		if age := now.Sub(x.seen); age >= keepFor || age < 0 {
			delete(k.known, key)
			logger.LogAttrs(ctx, slog.LevelInfo, "incident is over", append(x.attrs()[:3], slog.Duration("took", x.seen.Sub(x.Since)))...)
			continue
		}
		list = append(list, x.Incident)
	}
	return sort(list)
}

func (i *Incident) attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("cause", string(i.Cause)), slog.String("name", i.Name), slog.String("id", i.ID),
		slog.Any("who", i.Who), slog.String("detail", i.Detail), slog.String("act", i.Act),
	}
}

func level(s Severity) slog.Level {
	switch s {
	case Critical:
		return slog.LevelError
	case Warning:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

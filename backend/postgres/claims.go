package postgres

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/pods"
)

type claimList = []pods.Claim

// claim replaces claims in the ledger: the check of a limit and the addition are one statement,
// so servers that claim at the same time never exceed it. It locks the resources in one order.
func claim(ctx context.Context, tx pgx.Tx, old, now claimList) error {
	change, limits := difference(old, now)
	var names [][]byte
	var units, maxima []int64
	freed := false
	for _, resource := range slices.Sorted(maps.Keys(change)) {
		n := change[resource]
		if n == 0 {
			continue
		}
		if n > 0 && n > limits[resource] {
			return pods.ErrNoCapacity
		}
		freed = freed || n < 0
		names, units, maxima = append(names, []byte(resource)), append(units, n), append(maxima, limits[resource])
	}
	if len(names) == 0 {
		return nil
	}
	tag, err := tx.Exec(ctx, `
		INSERT INTO podyard.claims AS c (resource, units, maximum)
		SELECT r, n, m FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) u(r, n, m) ORDER BY r
		ON CONFLICT (resource) DO UPDATE SET units = c.units + excluded.units, maximum = excluded.maximum
		WHERE excluded.units < 0 OR c.units + excluded.units <= excluded.maximum`, names, units, maxima)
	if err != nil {
		return err
	}
	if tag.RowsAffected() < int64(len(names)) {
		return pods.ErrNoCapacity
	}
	if freed {
		_, err = tx.Exec(ctx, `DELETE FROM podyard.claims WHERE resource = ANY($1) AND units = 0`, names)
	}
	return err
}

// difference returns what is added of each resource, and its least limit.
func difference(old, now claimList) (change, limits map[string]int64) {
	change, limits = map[string]int64{}, map[string]int64{}
	for _, c := range old {
		change[c.Resource] -= c.Units
	}
	for _, c := range now {
		change[c.Resource] += c.Units
		if limit, ok := limits[c.Resource]; !ok || c.Limit < limit {
			limits[c.Resource] = c.Limit
		}
	}
	return change, limits
}

package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/serverless/queue"
)

// resealJobs seals the data of jobs for workers only with the key, unless it is.
func (s *Store) resealJobs(ctx context.Context) error {
	last, more := queue.Ref{}, true
	for more {
		err := s.tx(ctx, func(tx pgx.Tx) (err error) {
			last, more, err = s.resealSomeJobs(ctx, tx, last)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) resealSomeJobs(ctx context.Context, tx pgx.Tx, last queue.Ref) (_ queue.Ref, more bool, err error) {
	type row struct {
		num           int64
		ep, id, extra []byte
	}
	rows, err := tx.Query(ctx, `
		SELECT b.num, j.ep, j.id, b.extra FROM podyard.jobs j JOIN podyard.job_bodies b ON b.num = j.num
		WHERE b.extra IS NOT NULL AND (j.ep, j.id) > ($1, $2) ORDER BY j.ep, j.id LIMIT $3 FOR UPDATE OF b`,
		[]byte(last.Endpoint), []byte(last.ID), resealStep)
	if err != nil {
		return last, false, err
	}
	list, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (v row, err error) {
		err = r.Scan(&v.num, &v.ep, &v.id, &v.extra)
		return v, err
	})
	if err != nil {
		return last, false, err
	}
	for _, r := range list {
		last = queue.Ref{Endpoint: string(r.ep), ID: queue.JobID(r.id)}
		if queue.PlainExtra(r.extra) {
			continue
		}
		sealed, err := s.seals.again(extraName(last), r.extra)
		if err != nil {
			return last, false, err
		}
		if sealed == nil {
			continue
		}
		if _, err := tx.Exec(ctx, `UPDATE podyard.job_bodies SET extra = $2 WHERE num = $1`, r.num, sealed); err != nil {
			return last, false, err
		}
	}
	return last, len(list) == resealStep, nil
}

// again returns what was sealed with an old key, sealed with the key; nil if it is.
func (s sealer) again(name, sealed []byte) ([]byte, error) {
	if _, err := (sealer{key: s.key}).open(name, sealed); !errors.Is(err, ErrKey) {
		return nil, err
	}
	secret, err := s.open(name, sealed)
	if err != nil {
		return nil, err
	}
	return s.seal(name, secret)
}

package postgres

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/pods/sshkeys"
)

// SSHKeys is an sshkeys.Store.
type SSHKeys struct{ s *Store }

var _ sshkeys.Store = (*SSHKeys)(nil)

// SSHKeys returns the store of the public SSH keys of users.
func (s *Store) SSHKeys() *SSHKeys { return &SSHKeys{s} }

// SSHKeys implements sshkeys.Store.
func (s *SSHKeys) SSHKeys(ctx context.Context, owner string) (keys []string, err error) {
	var data []byte
	err = s.s.read(ctx, func(c *pgxpool.Conn) error {
		return c.QueryRow(ctx, `SELECT data FROM podyard.ssh_keys WHERE owner = $1`, []byte(owner)).Scan(&data)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return keys, json.Unmarshal(data, &keys)
}

// SetSSHKeys implements sshkeys.Store.
func (s *SSHKeys) SetSSHKeys(ctx context.Context, owner string, keys []string) error {
	data, err := json.Marshal(keys)
	if err != nil {
		return err
	}
	if err := s.within(ctx, owner, keys); err != nil {
		return err
	}
	_, err = s.s.exec(ctx, `INSERT INTO podyard.ssh_keys (owner, data) VALUES ($1, $2) ON CONFLICT (owner) DO UPDATE SET data = excluded.data`, []byte(owner), data)
	return err
}

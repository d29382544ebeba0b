package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/ratelimit/budget"
)

// A Clock has the time: Now, and AfterFunc(t, f), which calls f once Now has reached t and returns a
// stop that reports whether it prevented the call. f must not block. It is one type in all packages.
type Clock = clock.Clock

// Options configures a Store. The zero value and nil work.
type Options struct {
	// Key encrypts secrets: the credentials of registries, the s3Config of jobs and
	// schedules, and the environment variables that startSsh and startJupyter add to a pod.
	// Nothing else is encrypted. Key has KeySize bytes and is the same on all servers.
	// Default: none; a change with a secret is then refused with ErrNoKey, and so is server.New, because
	// servers share secrets.
	Key []byte
	// OldKeys are other keys that secrets may be encrypted with. Opening the store encrypts
	// them again with Key. Another server may still use an old key as its Key: it needs Key
	// among its OldKeys, and the last change of a key needs one more opening.
	OldKeys [][]byte
	// Pool is a pool of the program on the same database, instead of a URL: Open connects as it
	// does, with its address, user, password, TLS, BeforeConnect and DialFunc. The connections are
	// the Store's own. They have limits and settings that the program's must not have, and a
	// transaction of the program that waits for one of the same pool would wait for itself. Open
	// never uses or closes Pool. A pool whose statements have no names, which is how programs work
	// through a pooler of transactions, counts as one with pool_mode=transaction.
	Pool *pgxpool.Pool
	// MaxConns is the largest number of connections in the pool. A watcher of changes has one
	// more. Default: pool_max_conns of the URL, or 16.
	MaxConns int
	// Name is the application_name of the connections, unless the URL has one. Default
	// "podyard".
	Name string
	// Clock times pauses and limits, and is compared with the clock of the database: Open refuses
	// to work with more than 5 s between them. Default: the system's clock.
	Clock Clock
	// Logger logs what no caller can see, such as notifications that are cut off and return, and why
	// the database refuses work. Default: nothing is logged.
	Logger *slog.Logger

	times times // shorter in tests
	sizes sizes // smaller in tests
}

// Defaults of Options and of the URL.
const (
	defaultMaxConns       = 16
	defaultConnectTimeout = 5 * time.Second
	defaultName           = "podyard"
)

func (o *Options) settle() (Options, error) {
	c := Options{}
	if o != nil {
		c = *o
	}
	if c.Key != nil && len(c.Key) != KeySize {
		return c, fmt.Errorf("postgres: the key has %d bytes and not %d", len(c.Key), KeySize)
	}
	for i, key := range c.OldKeys {
		if c.Key == nil || len(key) != KeySize {
			return c, fmt.Errorf("postgres: old key %d has %d bytes and not %d, or there is no key", i, len(key), KeySize)
		}
	}
	if c.Name == "" {
		c.Name = defaultName
	}
	if c.Clock == nil {
		c.Clock = clock.System{}
	}
	c.times, c.sizes = c.times.settle(), c.sizes.settle()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// A Store stores everything in one database. It is safe for concurrent use, by any number of
// servers at once.
type Store struct {
	opts  Options
	times times
	links *links
	pool  *pgxpool.Pool
	// pooled: each transaction may have another connection of the database. So no connection has
	// a state, and nothing listens.
	pooled bool
	node   string // tells the notifications of this Store from those of others

	closing  chan struct{} // closed by Close: what runs in the background ends
	stop     sync.Once
	notifier notifier
	jobs     *Jobs
	running  sync.WaitGroup

	troubles  troubles
	looked    atomic.Int64 // when the clocks were compared, in nanoseconds since 1970
	seals     sealer
	keysAdded atomic.Int64 // creations with an Idempotency-Key
	swept     atomic.Int64 // calls after some of which leases and counts that are over are removed
	pods      Pods
	limits    atomic.Pointer[budget.Set] // nil: none
}

// Open connects to the database of a URL (postgres:// or postgresql://, with the parameters of
// libpq, such as sslmode, and pool_max_conns) and brings its schema up to date. With
// pool_mode=transaction in the URL it works through a pooler that gives each transaction another
// connection, such as PgBouncer with the same setting: it prepares no statements and hears of
// changes by other servers only when it looks. With Options.Pool the URL is empty. opts may be nil. ctx applies to the opening only.
// The caller must close the store. No error contains the password.
func Open(ctx context.Context, url string, opts *Options) (*Store, error) {
	o, err := opts.settle()
	if err != nil {
		return nil, err
	}
	cfg, pooled, err := configure(url, &o)
	if err != nil {
		return nil, err
	}
	s := &Store{
		opts: o, times: o.times, links: newLinks(cfg.ConnConfig.ConnectTimeout, o.Clock.Now),
		pooled: pooled, node: rand.Text(), closing: make(chan struct{}),
	}
	if o.Pool != nil {
		s.links.foreign = cfg.ConnConfig.DialFunc
	}
	s.notifier.s, s.troubles.s = s, s
	s.seals = sealer{o.Key, o.OldKeys}
	s.pods.init(s)
	if err := s.connectPools(ctx, cfg); err != nil {
		return nil, openError(cfg.ConnConfig, err)
	}
	if err := s.begin(ctx); err != nil {
		return nil, errors.Join(openError(cfg.ConnConfig, err), s.Close())
	}
	if err := s.checkKey(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// connectPools makes the pools, whose connections have the same limits.
func (s *Store) connectPools(ctx context.Context, cfg *pgxpool.Config) (err error) {
	cfg.ConnConfig.DialFunc = s.links.dial
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // see acquire
	cfg.ConnConfig.ValidateConnect = prepared(s.settings(""))
	if s.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	if s.jobs, err = newJobs(ctx, s, cfg); err != nil {
		s.pool.Close()
	}
	return err
}

// settings are those of a connection that nobody else uses.
func (s *Store) settings(more string) string {
	if s.pooled {
		return ""
	}
	return more + idleSetting + "; " + s.times.statementSetting() + "; "
}

// begin brings the schema up to date and looks at the database.
func (s *Store) begin(ctx context.Context) error {
	if err := s.migrate(ctx); err != nil {
		return err
	}
	return s.look(ctx)
}

// configure returns how to connect. pooled reports whether that is through a pooler of transactions.
func configure(url string, o *Options) (cfg *pgxpool.Config, pooled bool, err error) {
	switch {
	case o.Pool == nil:
		return parse(url, o)
	case url != "":
		return nil, false, fmt.Errorf("%w: it must be empty beside Options.Pool", ErrURL)
	}
	cfg = o.Pool.Config()
	pooled = cfg.ConnConfig.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement
	if pooled {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	// What the program does with its own connections is not for those of the Store.
	cfg.BeforeAcquire = nil //nolint:staticcheck // a program may still use it
	cfg.AfterConnect, cfg.PrepareConn, cfg.AfterRelease, cfg.BeforeClose = nil, nil, nil, nil
	cfg.ConnConfig.Tracer, cfg.ConnConfig.OnNotice, cfg.ConnConfig.OnNotification = nil, nil, nil
	cfg.MinConns, cfg.MinIdleConns, cfg.MaxConns = 0, 0, defaultMaxConns
	settle(cfg, o)
	return cfg, pooled, nil
}

// settle fills in what cfg does not say.
func settle(cfg *pgxpool.Config, o *Options) {
	if o.MaxConns > 0 {
		cfg.MaxConns = int32(min(o.MaxConns, 1<<16))
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = defaultConnectTimeout
	}
	if params := cfg.ConnConfig.RuntimeParams; params["application_name"] == "" {
		params["application_name"] = o.Name
	}
}

// parse reads a URL. pooled reports whether it asks for a pooler of transactions. Errors of pgx
// quote the URL, so none of them is returned as it is.
func parse(raw string, o *Options) (cfg *pgxpool.Config, pooled bool, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, false, fmt.Errorf("%w: %s", ErrURL, notParsed(raw))
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, false, fmt.Errorf("%w: it begins with postgres://", ErrURL)
	}
	if cfg, err = pgxpool.ParseConfig(raw); err != nil {
		return nil, false, fmt.Errorf("%w: %s", ErrURL, withoutURL(u, err))
	}
	if pooled, err = poolMode(u, cfg.ConnConfig); err != nil {
		return nil, false, err
	}
	if !u.Query().Has("pool_max_conns") {
		cfg.MaxConns = defaultMaxConns
	}
	settle(cfg, o)
	return cfg, pooled, nil
}

// notParsed says why a URL may not parse, without quoting it.
func notParsed(raw string) string {
	if raw = strings.ToLower(raw); strings.Contains(raw, "@%2f") || strings.Contains(raw, "://%2f") {
		return "a directory with a socket is not written as a host but as postgres://USER@/DB?host=/DIR"
	}
	return "it does not parse; special characters in the user and the password are written as %XX"
}

// poolMode reads pool_mode of a URL, which is for this program and not for the database.
func poolMode(u *url.URL, c *pgx.ConnConfig) (pooled bool, err error) {
	mode := c.RuntimeParams["pool_mode"]
	delete(c.RuntimeParams, "pool_mode")
	switch mode {
	case "", "session":
		return false, nil
	case "transaction":
		if !u.Query().Has("default_query_exec_mode") {
			c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe // its statements have no names
		}
		return true, nil
	}
	return false, fmt.Errorf("%w: pool_mode is session or transaction", ErrURL)
}

// withoutURL is the text of an error of pgx after the URL that it quotes.
func withoutURL(u *url.URL, err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "`: "); i >= 0 {
		text = text[i+len("`: "):]
	}
	if password, ok := u.User.Password(); ok && password != "" {
		text = strings.ReplaceAll(text, password, "xxxxx")
	}
	return text
}

// Close ends what runs in the background and closes the connections. It waits for calls under
// way, but not for a database that does not answer. After Close, the store and everything obtained
// from it return ErrClosed. The error is always nil.
func (s *Store) Close() error {
	s.stop.Do(func() {
		s.jobs.end()
		s.notifier.end()
		close(s.closing)
		defer s.after(s.times.end, s.links.close)()
		s.running.Wait()
		s.jobs.pool.Close()
		s.pool.Close()
		s.links.close()
	})
	return nil
}

func (s *Store) closed() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// untilClosed returns a context that also ends when the store is closed.
func (s *Store) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// connect opens a connection outside of the pool, for LISTEN.
func (s *Store) connect(ctx context.Context) (*pgx.Conn, error) {
	cfg := s.pool.Config()
	if cfg.BeforeConnect != nil { // of Options.Pool: it may have a new password
		if err := cfg.BeforeConnect(ctx, cfg.ConnConfig); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, cfg.ConnConfig)
}

package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/postgrestest"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless/queue"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually calls f until it returns nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for range 6000 { // a guard of two minutes
		if err = f(); err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal(err)
}

func TestARestartedDatabaseIsUsedAgain(t *testing.T) {
	suite.SkipUnlessLong(t)
	var server postgrestest.Server // of its own: other tests need theirs
	t.Cleanup(server.Stop)
	s := openURL(t, server.Empty(t))
	other := openURL(t, server.URL("postgres", "", "test1"))
	must(t, s.Volumes().Create(t.Context(), volumes.Volume{ID: "v", Owner: "alice"}))
	hints := make(chan []string, 1000)
	watching, stop := context.WithCancel(t.Context())
	var watcher sync.WaitGroup
	watcher.Go(func() {
		if err := s.Pods().Watch(watching, func(ids []string) { hints <- ids }); !errors.Is(err, context.Canceled) {
			t.Errorf("Watch = %v, want context.Canceled", err)
		}
	})
	t.Cleanup(func() { stop(); watcher.Wait() })
	if ids := <-hints; ids != nil {
		t.Errorf("the first hint is %q, want that some may be lost", ids)
	}
	for _, crash := range []bool{false, true} {
		var readers sync.WaitGroup
		for range 32 { // so that the pool has many connections
			readers.Go(func() {
				if _, err := s.Volumes().Get(t.Context(), "v"); err != nil {
					t.Error(err)
				}
			})
		}
		readers.Wait()
		server.Restart(t, crash, func() {
			_, err := s.Volumes().Get(t.Context(), "v")
			if !errors.Is(err, postgres.ErrUnreachable) || problem.Of(err).Status != 503 {
				t.Errorf("Get without a database = %v, want ErrUnreachable", err)
			}
		})
		for range 20 {
			if _, err := s.Volumes().Get(t.Context(), "v"); err != nil {
				t.Errorf("Get after the restart = %v, want nil", err)
			}
		}
		must(t, s.Pods().Create(t.Context(), &pods.Pod{ID: map[bool]string{false: "a", true: "b"}[crash]}))
		for lost := false; !lost; { // the watcher listens again
			lost = <-hints == nil
		}
		must(t, ignore(postgres.ErrUnknown, other.Pods().Create(t.Context(), &pods.Pod{ID: map[bool]string{false: "c", true: "d"}[crash]})))
		for ids := range hints {
			if len(ids) == 1 && (ids[0] == "c" || ids[0] == "d") {
				break
			}
		}
	}
}

func ignore(what, err error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}

// A cutter passes connections on to a database until a client commits.
type cutter struct {
	net.Listener
	to      string
	armed   atomic.Bool
	forward bool // whether the commit arrives
	hold    bool // nothing is cut off: the commit does not arrive
}

func newCutter(t *testing.T, database string, forward bool) (c *cutter, through string) {
	t.Helper()
	u, err := url.Parse(database)
	must(t, err)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	c = &cutter{Listener: l, to: u.Host, forward: forward}
	go c.serve()
	u.Host = l.Addr().String()
	return c, u.String()
}

func (c *cutter) serve() {
	for {
		client, err := c.Accept()
		if err != nil {
			return
		}
		go c.pass(client)
	}
}

func (c *cutter) pass(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() { _, _ = io.Copy(client, server); _ = client.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		cut := bytes.Contains(bytes.ToLower(buf[:n]), []byte("commit\x00")) && c.armed.CompareAndSwap(true, false)
		if cut && c.hold {
			_, _ = io.Copy(io.Discard, client)
			return
		}
		if cut {
			_ = client.Close() // no answer gets through
		}
		if cut && !c.forward {
			return
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
		if cut {
			_, _ = io.Copy(io.Discard, server)
			return
		}
	}
}

// A server stands still before it commits. The rows that it has locked are free soon, and it makes
// the transaction again when it goes on.
func TestAServerThatStandsStillHoldsUpNoOther(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Run("Direct", func(t *testing.T) {
		database := postgresql.Database(t)
		standStill(t, database+"&default_query_exec_mode=cache_describe", database)
	})
	t.Run("Pooled", func(t *testing.T) {
		database := postgresql.Database(t)
		standStill(t, pooled(t, database), database)
	})
}

func standStill(t *testing.T, through, database string) {
	t.Helper()
	c, through := newCutter(t, through, false)
	c.hold = true
	a, b := openURL(t, through), openURL(t, database)
	held := func(t *testing.T, call func(), other func(ctx context.Context) error) {
		var wg sync.WaitGroup
		defer wg.Wait()
		c.armed.Store(true)
		wg.Go(call)
		eventually(t, func() error {
			if c.armed.Load() {
				return errors.New("no commit was held: this shows nothing")
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		must(t, other(ctx))
	}
	t.Run("Jobs", func(t *testing.T) {
		waiting(t, a.Jobs(), "first")
		_, err := claimOne(t.Context(), a.Jobs()) // the statements are described
		must(t, err)
		ref := waiting(t, b.Jobs(), "second")
		var jobs []queue.Job
		held(t, func() { jobs, err = claimOne(t.Context(), a.Jobs()) }, func(ctx context.Context) error {
			res := make([]queue.Result, 1)
			err := b.Jobs().Apply(ctx, 3, []queue.Op{{Ref: ref, Kind: queue.OpCancel}}, res)
			return errors.Join(err, res[0].Err)
		})
		if err != nil || len(jobs) != 0 {
			t.Errorf("Claim = %v, %v, want no job: the other server has cancelled it", jobs, err)
		}
	})
	t.Run("Records", func(t *testing.T) {
		v := volumes.Volume{ID: "v", Owner: "alice"}
		var err error
		held(t, func() { err = a.Volumes().Create(t.Context(), v) }, func(ctx context.Context) error { return b.Volumes().Create(ctx, v) })
		if !errors.Is(err, volumes.ErrExists) {
			t.Errorf("Create = %v, want ErrExists: the other server has created it", err)
		}
	})
}

func TestTheOutcomeOfACommitThatIsCutOffIsUnknown(t *testing.T) {
	suite.SkipUnlessLong(t)
	for _, arrives := range []bool{false, true} {
		database := postgresql.Database(t)
		c, through := newCutter(t, database, arrives)
		s := openURL(t, through)
		c.armed.Store(true)
		err := s.Volumes().Create(t.Context(), volumes.Volume{ID: "v", Owner: "alice"})
		if !errors.Is(err, postgres.ErrUnknown) || problem.Of(err).Status != 503 {
			t.Errorf("Create = %v, want ErrUnknown", err)
		}
		want := volumes.ErrNotFound
		if arrives {
			want = nil
		}
		eventually(t, func() error {
			if _, err := s.Volumes().Get(t.Context(), "v"); want == nil || !errors.Is(err, want) {
				return err
			}
			return nil
		})
		err = s.Volumes().Create(t.Context(), volumes.Volume{ID: "v", Owner: "alice"}) // a repetition is safe
		if arrives != errors.Is(err, volumes.ErrExists) {
			t.Errorf("a repetition of the creation = %v", err)
		}
	}
}

func TestAfterCloseCallsReturnErrClosed(t *testing.T) {
	s := openURL(t, postgresql.Database(t))
	watched := make(chan error)
	go func() { watched <- s.Pods().Watch(t.Context(), func([]string) {}) }()
	_ = s.Close()
	_ = s.Close()
	if err := <-watched; !errors.Is(err, postgres.ErrClosed) {
		t.Errorf("Watch = %v, want ErrClosed", err)
	}
	if err := s.Pods().Create(t.Context(), &pods.Pod{ID: "a"}); !errors.Is(err, postgres.ErrClosed) {
		t.Errorf("Create = %v, want ErrClosed", err)
	}
	if _, err := s.Pods().Get(t.Context(), "a"); !errors.Is(err, postgres.ErrClosed) {
		t.Errorf("Get = %v, want ErrClosed", err)
	}
	if err := s.Err(t.Context()); !errors.Is(err, postgres.ErrClosed) {
		t.Errorf("Err = %v, want ErrClosed", err)
	}
}

func TestAWatcherSeesChangesOfAnotherServer(t *testing.T) {
	database := postgresql.Database(t)
	a, b := openURL(t, database), openURL(t, database)
	hints := make(chan []string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	var watcher sync.WaitGroup
	watcher.Go(func() { _ = a.Pods().Watch(ctx, func(ids []string) { hints <- ids }) })
	defer watcher.Wait()
	defer cancel()
	<-hints // it listens
	for _, id := range []string{"a", "é \x00\xff", strings.Repeat("long", 3000)} {
		must(t, b.Pods().Create(t.Context(), &pods.Pod{ID: id}))
		ids := <-hints
		if len(id) > 1000 && ids != nil || len(id) < 1000 && (len(ids) != 1 || ids[0] != id) {
			t.Errorf("the hint after the creation of %.20q is %.20q", id, ids)
		}
	}
}

func TestOwnersMayBeAnyBytes(t *testing.T) {
	s := openURL(t, postgresql.Database(t)).Volumes()
	owners := []string{"al\x00ice", "al\xff", "al", "", `\x00`}
	for i, owner := range owners {
		must(t, s.Create(t.Context(), volumes.Volume{ID: string(rune('a' + i)), Owner: owner}))
	}
	for i, owner := range owners {
		list, err := s.List(t.Context(), owner)
		if err != nil || len(list) != 1 || list[0].ID != string(rune('a'+i)) {
			t.Errorf("List(%q) = %+v, %v", owner, list, err)
		}
	}
}

func openWithKeys(t *testing.T, url string, keys ...[]byte) (*postgres.Store, error) {
	t.Helper()
	o := &postgres.Options{MaxConns: 2}
	if len(keys) > 0 {
		o.Key, o.OldKeys = keys[0], keys[1:]
	}
	s, err := postgres.Open(t.Context(), url, o)
	if err == nil {
		t.Cleanup(func() { _ = s.Close() })
	}
	return s, err
}

func TestSecretsAreSealedAgainWithANewKey(t *testing.T) {
	suite.SkipUnlessLong(t)
	url := postgresql.Database(t)
	one, two := bytes.Repeat([]byte("1"), postgres.KeySize), bytes.Repeat([]byte("2"), postgres.KeySize)
	add := func(s *postgres.Store, id string) error {
		made := s.Registries().Create(t.Context(), registries.Registry{ID: id}, registries.Credential{Username: "u", Password: registries.Secret("pw" + id)})
		return errors.Join(made, s.Secrets().Create(t.Context(), secrets.Secret{ID: id, Value: secrets.Value("value" + id)}))
	}
	has := func(s *postgres.Store, ids ...string) {
		t.Helper()
		for _, id := range ids {
			if _, c, err := s.Registries().Get(t.Context(), id); err != nil || c.Password != registries.Secret("pw"+id) {
				t.Errorf("Get(%s) = %q, %v", id, string(c.Password), err)
			}
			if v, err := s.Secrets().Get(t.Context(), id); err != nil || v.Value != secrets.Value("value"+id) {
				t.Errorf("the secret %s has a value of %d bytes, %v", id, len(v.Value), err)
			}
		}
	}
	open := func(keys ...[]byte) *postgres.Store {
		t.Helper()
		s, err := openWithKeys(t, url, keys...)
		must(t, err)
		return s
	}
	bare := open()
	if err := add(bare, "x"); !errors.Is(err, postgres.ErrNoKey) {
		t.Errorf("a secret without a key = %v, want ErrNoKey", err)
	}
	first := open(one)
	must(t, add(first, "a"))
	job := queue.Job{Ref: queue.Ref{Endpoint: "e", ID: "j"}, Owner: "alice", Extra: []byte("s3"), State: queue.State{Status: queue.InQueue, Queued: 1, Expires: 1 << 40}}
	must(t, first.Jobs().Enqueue(t.Context(), []queue.Job{job}))
	if _, err := openWithKeys(t, url, two); !errors.Is(err, postgres.ErrKey) {
		t.Errorf("Open with another key = %v, want ErrKey", err)
	}
	first = open(one, two) // both servers can read both keys before one of them changes its key
	second := open(two, one)
	must(t, add(first, "b"))
	must(t, add(second, "c"))
	has(first, "a", "b", "c")
	has(second, "a", "b", "c")
	open(two, one)
	last := open(two)
	has(last, "a", "b", "c")
	if j, err := last.Jobs().Get(t.Context(), 2, job.Ref); err != nil || string(j.Extra) != "s3" {
		t.Errorf("the data of the job for workers is %q, %v", j.Extra, err)
	}
	if _, err := openWithKeys(t, url, one); !errors.Is(err, postgres.ErrKey) {
		t.Errorf("Open with the old key = %v, want ErrKey", err)
	}
}

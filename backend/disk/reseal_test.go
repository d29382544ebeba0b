package disk

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless/queue"
)

// fillSecrets creates records with secrets of each kind.
func fillSecrets(t *testing.T, s *Store) {
	t.Helper()
	ctx := t.Context()
	must(t, s.Registries().Create(ctx, registries.Registry{ID: "r1", Owner: "alice"}, registries.Credential{Username: "user", Password: "word"}))
	must(t, s.Secrets().Create(ctx, secrets.Secret{ID: "w1", Owner: "alice", Name: "key", Size: 5, Value: "value"}))
	must(t, s.Pods().Create(ctx, &pods.Pod{ID: "p1", Owner: "alice", Injected: map[string]string{"PASSWORD": "injected"}}))
	must(t, s.Pods().Create(ctx, &pods.Pod{ID: "p2", Owner: "alice"}))
	for i := range 3 {
		j := newJob(fmt.Sprint("j", i))
		j.Extra, j.Webhook = []byte(`{"s3Config":{"accessId":"extra"}}`), "http://example.com/"
		must(t, s.Jobs().Enqueue(ctx, []queue.Job{j}))
	}
}

// wantSecrets fails unless the current key of the store alone decrypts all secrets.
func wantSecrets(t *testing.T, s *Store) {
	t.Helper()
	e, err := s.engine()
	must(t, err)
	e.seals.old = nil
	_, c, err := s.Registries().Get(t.Context(), "r1")
	if err != nil || c.Username != "user" || c.Password != "word" {
		t.Errorf("the credential does not open: %v", err)
	}
	if v, err := s.Secrets().Get(t.Context(), "w1"); err != nil || v.Value != "value" {
		t.Errorf("the secret does not open: %v", err)
	}
	injected, extras := 0, 0
	must(t, e.loadEach(keyPod, func(key, value []byte) error {
		p, err := decodePod(e, key, value)
		if err == nil && p.Injected["PASSWORD"] == "injected" {
			injected++
		}
		return err
	}))
	must(t, e.loadEach(keyBody, func(key, value []byte) error {
		var j queue.Job
		if !isExtras(key) {
			return nil
		}
		err := decodeExtras(e.seals, key, value, &j)
		if j.Webhook == "http://example.com/" && bytes.Contains(j.Extra, []byte("extra")) {
			extras++
		}
		return err
	}))
	if injected != 1 || extras != 3 || len(e.lost) > 0 {
		t.Errorf("%d of 1 pod and %d of 3 jobs have their secrets; lost: %v", injected, extras, e.lost)
	}
}

func reopenWith(t *testing.T, fs vfs.FS, key []byte, old ...[]byte) (*Store, error) {
	t.Helper()
	opts := inMemory(fs)
	opts.Key, opts.OldKeys = key, old
	return Open(t.Context(), "store", opts)
}

func TestSecretsAreSealedWithANewKeyAndTheOldOneIsNotNeededAgain(t *testing.T) {
	fs := vfs.NewMem()
	next := bytes.Repeat([]byte{9}, KeySize)
	s, err := reopenWith(t, fs, testKey)
	must(t, err)
	fillSecrets(t, s)
	must(t, s.Close())
	for _, old := range [][][]byte{{testKey}, {testKey}, nil} {
		s, err := reopenWith(t, fs, next, old...)
		must(t, err)
		wantSecrets(t, s)
		must(t, s.Close())
	}
	if _, err := reopenWith(t, fs, testKey); !errors.Is(err, ErrKey) {
		t.Errorf("Open with the old key alone = %v, want ErrKey", err)
	}
	if _, err := reopenWith(t, fs, bytes.Repeat([]byte{7}, KeySize), testKey); !errors.Is(err, ErrKey) {
		t.Errorf("Open with two keys that are not the store's = %v, want ErrKey", err)
	}
}

func TestARotationThatWasCutOffIsFinishedByTheNextOpening(t *testing.T) {
	fs := vfs.NewMem()
	next := bytes.Repeat([]byte{9}, KeySize)
	s, err := reopenWith(t, fs, testKey)
	must(t, err)
	fillSecrets(t, s)
	// As after an interrupted opening: one record of each kind has the new key, and the known
	// text has the old key.
	e, err := s.engine()
	must(t, err)
	changed := &engine{db: e.db, seals: sealer{next, [][]byte{testKey}}}
	b := e.db.NewBatch()
	for _, kind := range []byte{keyRegistry, keySecret, keyPod, keyBody} {
		done := false
		must(t, e.loadEach(kind, func(key, value []byte) error {
			sealed, err := changed.resealed(key, value)
			if err == nil && sealed != nil && !done {
				put(b, key, sealed)
				done = true
			}
			return err
		}))
		if !done {
			t.Errorf("no record of the kind %c was sealed anew", kind)
		}
	}
	must(t, e.db.Apply(b, pebble.Sync))
	must(t, s.Close())
	if _, err := reopenWith(t, fs, next); !errors.Is(err, ErrKey) {
		t.Errorf("Open with the new key alone = %v, want ErrKey: there are secrets that it does not open", err)
	}
	for _, old := range [][][]byte{{testKey}, nil} {
		s, err := reopenWith(t, fs, next, old...)
		must(t, err)
		wantSecrets(t, s)
		must(t, s.Close())
	}
}

func TestOldKeysThatCannotBeAreRefused(t *testing.T) {
	for _, opts := range []*Options{{OldKeys: [][]byte{testKey}}, {Key: testKey, OldKeys: [][]byte{{1}}}} {
		opts.fs = vfs.NewMem()
		if _, err := Open(t.Context(), "store", opts); err == nil {
			t.Errorf("Open takes the old keys %v", opts.OldKeys)
		}
	}
}

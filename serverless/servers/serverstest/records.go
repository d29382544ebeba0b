package serverstest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/servers"
)

// TestRecords runs every rule of servers.Records on stores that open returns: two of one new, empty
// store, as two servers have them. They may be the same value.
func TestRecords(t *testing.T, open func(t *testing.T) [2]servers.Records) {
	for _, r := range recordRules {
		suite.Run(t, r.name, r.why, func(t *testing.T) {
			list := open(t)
			r.run(&recordFixture{fixture: fixture{T: t}, a: list[0], b: list[1]})
		})
	}
}

type recordFixture struct {
	fixture
	a, b servers.Records
}

type recordRule struct {
	name, why string
	run       func(k *recordFixture)
}

func (k *recordFixture) put(s servers.Records, key, data string, version int64) int64 {
	k.Helper()
	v, err := s.Put(k.Context(), servers.Record{Key: key, Version: version, Data: []byte(data)})
	if err != nil {
		k.Fatalf("Put of %q over version %d = %v, want nil", key, version, err)
	}
	return v
}

func (k *recordFixture) changes(s servers.Records, after int64, limit int) []servers.Record {
	k.Helper()
	list, err := s.Changes(k.Context(), after, limit)
	if err != nil {
		k.Fatalf("Changes = %v, want nil", err)
	}
	return list
}

var recordRules = []recordRule{
	{"AStoredRecordIsRead", "what one server stores the other reads, and nothing is shared with callers", func(k *recordFixture) {
		data := []byte("one")
		v, err := k.a.Put(k.Context(), servers.Record{Key: "x\x00", Data: data})
		if err != nil || v <= 0 {
			k.Fatalf("Put = %d, %v, want a version above 0", v, err)
		}
		data[0] = '!'
		got := k.changes(k.b, 0, 10)
		k.want("Changes", []servers.Record{{Key: "x\x00", Version: v, Data: []byte("one")}}, got)
		got[0].Data[0] = '!'
		k.want("data", "one", string(k.changes(k.b, 0, 10)[0].Data))
	}},
	{"OnlyWhoHasReadItChangesIt", "Put over another version than the stored one changes nothing", func(k *recordFixture) {
		first := k.put(k.a, "x", "one", 0)
		second := k.put(k.b, "x", "two", first)
		for _, old := range []int64{0, first, second + 1} {
			if _, err := k.a.Put(k.Context(), servers.Record{Key: "x", Version: old, Data: []byte("three")}); !errors.Is(err, servers.ErrChanged) {
				k.Errorf("Put over version %d = %v, want ErrChanged", old, err)
			}
		}
		if _, err := k.a.Put(k.Context(), servers.Record{Key: "y", Version: first}); !errors.Is(err, servers.ErrChanged) {
			k.Errorf("Put of a record that is not there, over version %d = %v, want ErrChanged", first, err)
		}
		k.want("Changes", []servers.Record{{Key: "x", Version: second, Data: []byte("two")}}, k.changes(k.a, 0, 10))
	}},
	{"ChangesAreInOrder", "Changes has the records after a version, the oldest change first, up to the limit", func(k *recordFixture) {
		a := k.put(k.a, "a", "1", 0)
		b := k.put(k.b, "b", "1", 0)
		c := k.put(k.a, "c", "1", 0)
		again := k.put(k.b, "a", "2", a)
		if a >= b || b >= c || c >= again {
			k.Errorf("versions %d, %d, %d, %d, want them to grow", a, b, c, again)
		}
		keys := func(list []servers.Record) (keys []string) {
			for _, r := range list {
				keys = append(keys, r.Key)
			}
			return keys
		}
		k.want("all", []string{"b", "c", "a"}, keys(k.changes(k.a, 0, 10)))
		k.want("two", []string{"b", "c"}, keys(k.changes(k.a, 0, 2)))
		k.want("after b", []string{"c", "a"}, keys(k.changes(k.b, b, 10)))
		k.want("after the last", 0, len(k.changes(k.b, again, 10)))
	}},
	{"AReaderMissesNothing", "who reads from its last version on sees every record that was stored meanwhile", recordsMissNothing},
	{"OneOfTwoPutsWins", "of several servers that store over one version one succeeds", func(k *recordFixture) {
		var mu sync.Mutex
		won := 0
		suite.Together(8, func(i int) {
			_, err := [...]servers.Records{k.a, k.b}[i%2].Put(k.Context(), servers.Record{Key: "x", Data: fmt.Append(nil, i)})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if !errors.Is(err, servers.ErrChanged) {
				k.Errorf("Put = %v, want nil or ErrChanged", err)
			}
		})
		k.want("won", 1, won)
	}},
	{"BadRecordsAreRefused", "a record without a key, or one that is too large, is refused", func(k *recordFixture) {
		for _, r := range []servers.Record{{}, {Key: strings.Repeat("k", servers.MaxName+1)}, {Key: "x", Data: make([]byte, servers.MaxData+1)}} {
			if _, err := k.a.Put(k.Context(), r); problem.KindOf(err) != problem.Invalid || err == nil {
				k.Errorf("Put of a key of %d and data of %d bytes = %v, want Invalid", len(r.Key), len(r.Data), err)
			}
		}
		k.want("Changes", 0, len(k.changes(k.a, 0, 10)))
	}},
}

func recordsMissNothing(k *recordFixture) {
	const writers, each = 4, 10
	done := make(chan struct{})
	go func() {
		defer close(done)
		suite.Together(writers, func(i int) {
			for n := range each {
				_, err := [...]servers.Records{k.a, k.b}[i%2].Put(k.Context(), servers.Record{Key: fmt.Sprint(i, "-", n)})
				if err != nil {
					k.Errorf("Put = %v, want nil", err)
				}
			}
		})
	}()
	seen, last, over := map[string]bool{}, int64(0), false
	for {
		list := k.changes(k.b, last, 7)
		for _, r := range list {
			seen[r.Key], last = true, r.Version
		}
		if over && len(list) == 0 {
			break
		}
		select {
		case <-done:
			over = true
		default:
		}
	}
	k.want("records that were seen", writers*each, len(seen))
}

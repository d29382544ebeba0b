package jobindex

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/podyard/podyard/serverless/queue"
)

// A jobKey identifies a job in records.
type jobKey struct {
	endpoint uint32
	id       ident
}

// anyID returns an id that a Service could have made.
func anyID(random *rand.Rand) (d ident) {
	d.form = formUUID
	for i := range d.bits {
		d.bits[i] = byte(random.Uint32())
	}
	return d
}

// Random adds and removes: a record is found while it exists, and not afterwards. Pages are
// reused, and empty pages are freed.
func TestRecordsAreFoundWhileTheyAreThere(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 0))
	records := &records{}
	records.init()
	there := map[jobKey]uint32{}
	var keys []jobKey
	most := 0
	for round := range 24 {
		grow := round%4 < 2
		for range 8 * pageSize {
			if grow && random.IntN(8) > 0 || len(keys) == 0 {
				k := jobKey{uint32(1 + random.IntN(3)), anyID(random)}
				there[k], _ = records.add(k.endpoint, &k.id)
				keys = append(keys, k)
				continue
			}
			i := random.IntN(len(keys))
			records.remove(there[keys[i]])
			delete(there, keys[i])
			keys[i] = keys[len(keys)-1]
			keys = keys[:len(keys)-1]
		}
		most = max(most, len(records.pages))
		used := map[uint32]bool{}
		for k, want := range there {
			if got := records.find(k.endpoint, &k.id); got != want || used[got] {
				t.Fatalf("find(%d, %v) = %d, want %d, of its own", k.endpoint, k.id, got, want)
			}
			used[want] = true
			if got := records.find(k.endpoint+3, &k.id); got != 0 {
				t.Fatalf("find(%d, %v) = %d, want none: it is of another endpoint", k.endpoint+3, k.id, got)
			}
		}
		if records.count != len(there) {
			t.Fatalf("count = %d, want %d", records.count, len(there))
		}
	}
	for _, k := range keys {
		records.remove(there[k])
	}
	kept := 0
	for _, p := range records.pages[1:] {
		if p.records != nil {
			kept++
		}
	}
	if kept > 5 || most < 10 {
		t.Errorf("%d pages are kept of %d when no record is left, want a few of many", kept, most)
	}
	for i := range records.index {
		if s := &records.index[i]; s.n != 0 || len(s.slots) > 4*minSlots {
			t.Errorf("segment %d has %d entries in %d slots when no record is left", i, s.n, len(s.slots))
		}
	}
}

// Every id is returned unchanged, also an id that looks almost like one of a Service.
func TestIDsAreKept(t *testing.T) {
	x := New()
	for n, id := range []queue.JobID{
		"0123abcd-0123-4000-8000-0123456789ab-u1", "sync-0123abcd-0123-4000-8000-0123456789ab-u1",
		"0123ABCD-0123-4000-8000-0123456789ab-u1", "0123abcd-0123-4000-8000-0123456789ab-u2", "0123abcd-0123-4000-8000-0123456789ab",
		"sync-0123abcd-0123-4000-8000-0123456789ab", "0123abcd+0123-4000-8000-0123456789ab-u1", "sync-", "x", "0123abcd-0123-4000-8000-0123456789a-u1",
		"0123abcd-0123-4000-8000-0123456789abc-u", "gggggggg-0123-4000-8000-0123456789ab-u1",
	} {
		ref := queue.Ref{Endpoint: "e", ID: id}
		i, _ := x.Add(ref, "o", "", 0)
		if got := x.Ref(i); got != ref || x.Find(ref) != i {
			t.Errorf("%q is kept as %q, found as %d, want %d", id, got.ID, x.Find(ref), i)
		}
		if _, ok := x.Add(ref, "other", "", 0); ok || x.Len() != n+1 {
			t.Errorf("%q is there twice", id)
		}
	}
	if size := unsafe.Sizeof(record{}); size > 192 {
		t.Errorf("a record has %d bytes, want three cache lines at most", size)
	} else {
		t.Logf("a record has %d bytes", size)
	}
}

// Only lower-case digits at the places of a UUID are packed: every id with one other byte is either
// returned unchanged or not packed.
func TestOnlyTheIDsOfServicesArePacked(t *testing.T) {
	id := []byte("0123abcd-4567-489e-bf01-23456789afed-u1")
	for at := range id {
		for c := range 256 {
			was := id[at]
			id[at] = byte(c)
			d, ok := pack(queue.JobID(id))
			digit := '0' <= c && c <= '9' || 'a' <= c && c <= 'f'
			if dash := at == 8 || at == 13 || at == 18 || at == 23; dash || at >= uuidLen {
				digit = byte(c) == was
			}
			if ok != digit || ok && d.unpack() != queue.JobID(id) {
				t.Fatalf("%q is packed: %v, and unpacked as %q", id, ok, d.unpack())
			}
			id[at] = was
		}
	}
}

// A string keeps its number while it has references. Then the number may be reused.
func TestInternedStringsAreReferenceCounted(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 0))
	var n interner
	held, number := map[string]int{}, map[string]uint32{}
	for range 20_000 {
		s := fmt.Sprint("name-", random.IntN(60))
		switch {
		case random.IntN(2) == 0:
			i := n.intern(s)
			if held[s] > 0 && number[s] != i {
				t.Fatalf("hold(%q) = %d, want %d as before", s, i, number[s])
			}
			number[s] = i
			held[s]++
		case held[s] > 0:
			n.release(number[s])
			held[s]--
		}
		i, ok := n.find(s)
		if ok != (held[s] > 0) || ok && (i != number[s] || n.text(i) != s) {
			t.Fatalf("find(%q) = %d, %v, held %d times as %d", s, i, ok, held[s], number[s])
		}
	}
}

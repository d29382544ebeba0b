package disk

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
)

// withParity writes a file of random bytes in parts of different sizes, as tables are written.
func withParity(t *testing.T, rng *rand.Rand, size int) (fs *vfs.MemFS, whole []byte) {
	t.Helper()
	fs, whole = vfs.NewMem(), make([]byte, size)
	for i := range whole {
		whole[i] = byte(rng.Uint32())
	}
	w := &parityWriter{}
	for rest := whole; len(rest) > 0; {
		n := min(len(rest), 1+rng.IntN(3*rowSize))
		w.write(rest[:n])
		rest = rest[n:]
	}
	writeFile(t, fs, "1.sst", whole)
	must(t, w.save(fs, "1.sst"))
	return fs, whole
}

// tableSizes returns sizes in bytes, from less than one row to several stripes.
func tableSizes() []int {
	return []int{1, 700, rowSize, rowSize + 1, 16 * rowSize, 17 * rowSize, 300*rowSize + 5, 1024 * rowSize, 1025*rowSize + 9, 2500 * rowSize}
}

func TestEveryRowOfATableIsRestored(t *testing.T) {
	suite.SkipUnlessLong(t)
	for _, size := range tableSizes() {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(size), 1))
			fs, whole := withParity(t, rng, size)
			for first := 0; first < size; first += rowSize * max(1, size/rowSize/20) {
				rotten := bytes.Clone(whole)
				for i := first; i < min(size, first+rowSize); i++ {
					rotten[i] ^= byte(1 + rng.IntN(255))
				}
				writeFile(t, fs, "1.sst", rotten)
				n, left, err := restore(fs, "1.sst")
				if n != 1 || left != 0 || err != nil || !bytes.Equal(readFile(t, fs, "1.sst"), whole) {
					t.Errorf("the row at %d: %d restored, %d left, %v", first, n, left, err)
				}
			}
		})
	}
}

// Consecutive rows belong to different groups.
func TestARunOfRowsIsRestored(t *testing.T) {
	fs, whole := withParity(t, rand.New(rand.NewPCG(2, 2)), 600*rowSize)
	rotten := bytes.Clone(whole)
	clear(rotten[100*rowSize : (100+maxGroups)*rowSize])
	writeFile(t, fs, "1.sst", rotten)
	if n, left, err := restore(fs, "1.sst"); n != maxGroups || left != 0 || err != nil || !bytes.Equal(readFile(t, fs, "1.sst"), whole) {
		t.Errorf("%d restored, %d left, %v; want all %d", n, left, err, maxGroups)
	}
}

func TestATableThatWasCutOffIsRestored(t *testing.T) {
	fs, whole := withParity(t, rand.New(rand.NewPCG(3, 2)), 40*rowSize)
	writeFile(t, fs, "1.sst", whole[:38*rowSize+100])
	if n, left, err := restore(fs, "1.sst"); n != 2 || left != 0 || err != nil || !bytes.Equal(readFile(t, fs, "1.sst"), whole) {
		t.Errorf("%d restored, %d left, %v; want both", n, left, err)
	}
}

// Two damaged rows of one group are not changed. Other groups are still restored.
func TestTwoRowsOfAGroupAreNotRestored(t *testing.T) {
	fs, whole := withParity(t, rand.New(rand.NewPCG(4, 2)), 300*rowSize)
	rotten, want := bytes.Clone(whole), bytes.Clone(whole)
	for _, row := range []int{3, 3 + maxGroups} {
		rotten[row*rowSize] ^= 1
		want[row*rowSize] ^= 1
	}
	rotten[8*rowSize] ^= 1
	writeFile(t, fs, "1.sst", rotten)
	if n, left, err := restore(fs, "1.sst"); n != 1 || left != 2 || err != nil || !bytes.Equal(readFile(t, fs, "1.sst"), want) {
		t.Errorf("%d restored, %d left, %v; want 1 and 2", n, left, err)
	}
}

// A damaged parity file restores nothing and changes nothing.
func TestADamagedParityFileIsNotUsed(t *testing.T) {
	fs, whole := withParity(t, rand.New(rand.NewPCG(5, 2)), 20*rowSize)
	parity := readFile(t, fs, "1.sst"+paritySuffix)
	for i := 0; i < len(parity); i += 11 {
		rotten := bytes.Clone(parity)
		rotten[i] ^= 4
		writeFile(t, fs, "1.sst"+paritySuffix, rotten)
		writeFile(t, fs, "1.sst"+paritySuffix+".cut", parity[:i])
		for _, name := range []string{paritySuffix, paritySuffix + ".cut"} {
			writeFile(t, fs, "1.sst"+paritySuffix, readFile(t, fs, "1.sst"+name))
			if n, left, err := restore(fs, "1.sst"); !errors.Is(err, errNoParity) || n != 0 || left != 0 {
				t.Fatalf("byte %d of the parity file: %d restored, %d left, %v, want errNoParity", i, n, left, err)
			}
		}
	}
	if !bytes.Equal(readFile(t, fs, "1.sst"), whole) {
		t.Error("the table was changed")
	}
}

// Every table has a parity file, and every parity file has a table, also after tables are
// linked, copied or replaced.
func TestEveryTableHasAParityFile(t *testing.T) {
	mem := vfs.NewMem()
	s := openForTest(t, "store", inMemory(mem))
	for i := range 3 {
		j := newJob(fmt.Sprint("big", i))
		j.Input = make([]byte, 2*bigPayload)
		must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j, newJob(fmt.Sprint("small", i))}))
		s = reopen(t, s)
	}
	must(t, s.Backup(t.Context(), "copy"))
	compacted(t, s)
	must(t, s.Close())
	for _, dir := range []string{"store", "copy"} {
		tables := tablesIn(t, mem, dir)
		for _, name := range tables {
			if p, err := readParity(mem, name); err != nil || p.size != int64(len(readFile(t, mem, name))) {
				t.Errorf("the parity of %s: %d bytes, %v", name, p.size, err)
			}
		}
		names, err := mem.List(dir)
		must(t, err)
		n := 0
		for _, name := range names {
			if strings.HasSuffix(name, paritySuffix) {
				n++
			}
		}
		if n != len(tables) || n == 0 {
			t.Errorf("%s has %d parity files of %d tables", dir, n, len(tables))
		}
	}
}

func compacted(t *testing.T, s *Store) {
	t.Helper()
	e, err := s.engine()
	must(t, err)
	must(t, e.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false))
}

// A compaction continues after damage to any byte of a table, and nothing is lost.
func TestACompactionGoesOnOverDamage(t *testing.T) {
	mem := rottingStore(t, true)
	for _, name := range tablesIn(t, mem, "store") {
		rotOneByOne(t, mem, name, func(at int) {
			copied := vfs.NewMem()
			_, err := vfs.Clone(mem, copied, "store", "store")
			must(t, err)
			s := openForTest(t, "store", inMemory(copied))
			e, err := s.engine()
			must(t, err)
			err = e.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false)
			if err := errors.Join(err, s.Err()); err != nil {
				t.Fatalf("byte %d of %s: %v", at, name, err)
			}
			r, err := s.Check(t.Context())
			must(t, errors.Join(err, r.Err()))
			must(t, s.Close())
		})
	}
}

// A leftover parity file does not change a new table with the same number.
func TestTheParityFileOfAnotherTableIsNotUsed(t *testing.T) {
	for name, write := range map[string]func(t *testing.T, f *fence){
		"written": func(t *testing.T, f *fence) {
			_, err := f.Create("1.sst", vfs.WriteCategoryUnspecified) // as if killed before the file was complete
			must(t, err)
		},
		"linked": func(t *testing.T, f *fence) {
			writeFile(t, f.FS, "stage-1", []byte("without parity"))
			must(t, f.Link("stage-1", "1.sst"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs, _ := withParity(t, rand.New(rand.NewPCG(6, 2)), 900)
			must(t, fs.Remove("1.sst"))
			write(t, newFence(fs, "", nil))
			if n, _, err := restore(fs, "1.sst"); n != 0 || !errors.Is(err, errNoParity) {
				t.Errorf("%d parts of another table were restored, %v", n, err)
			}
		})
	}
}

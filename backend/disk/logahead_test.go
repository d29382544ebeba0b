package disk

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/serverless/queue"
)

// newestLog returns the size of the newest log of commits and how much of it was written.
func newestLog(t *testing.T, fs *vfs.MemFS) (size, written int) {
	t.Helper()
	logs := commitLogs(t, fs)
	log := logs[len(logs)-1]
	return len(readFile(t, fs, log)), int(scanned(t, fs, log).end)
}

func TestZerosAreAheadOfWhatIsWrittenToALog(t *testing.T) {
	mem := vfs.NewMem()
	s := openForTest(t, "store", inMemory(mem))
	for k := range 3 {
		j := newJob(string(rune('a' + k)))
		j.Input = make([]byte, aheadBytes/2)
		for n := range j.Input {
			j.Input[n] = byte(n) | 1
		}
		must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j}))
		size, written := newestLog(t, mem)
		if size < written || size > written+aheadBytes {
			t.Errorf("the log has %d bytes and %d were written, want up to %d zeros behind them", size, written, aheadBytes)
		}
		if k == 0 && size == written {
			t.Error("there are no zeros")
		}
	}
	crashed := cloned(t, mem)
	must(t, s.Close())
	s = openForTest(t, "store", inMemory(crashed))
	n := 0
	for _, err := range s.Jobs().List(t.Context(), at, queue.ListQuery{Endpoint: newJob("a").Endpoint}) {
		must(t, err)
		n++
	}
	if n != 3 {
		t.Errorf("%d jobs are there after a crash, want 3", n)
	}
}

// What an earlier log left in a file makes zeros needless.
func TestALogThatIsUsedAgainGetsZerosBehindItsOldBytesOnly(t *testing.T) {
	mem := vfs.NewMem()
	f := newFence(mem, ".", func(what, name string, err error) { t.Errorf("%s %s: %v", what, name, err) })
	old := bytes.Repeat([]byte{0x5a}, 2*aheadBytes)
	writeFile(t, mem, "000001.log", old)
	log, err := f.ReuseForWrite("000001.log", "000002.log", vfs.WriteCategoryUnspecified)
	must(t, err)
	part := bytes.Repeat([]byte{1}, aheadBytes/2)
	for k := range 5 {
		_, err := log.Write(bytes.Clone(part)) // a file system may modify the buffer
		must(t, err)
		want := append(bytes.Repeat(part, k+1), old[min((k+1)*len(part), len(old)):]...)
		if k >= 3 { // less than half of aheadBytes would be ahead
			want = append(want, make([]byte, 3*aheadBytes-len(want))...)
		}
		if got := readFile(t, mem, "000002.log"); !bytes.Equal(got, want) {
			t.Errorf("after %d writes the log has %d bytes, want %d: what was written, old bytes or zeros", k+1, len(got), len(want))
		}
	}
	must(t, log.Close())
}

// Zeros are the room of deletions when somebody else has filled the disk.
func TestZerosStayAheadUntilTheDiskIsFull(t *testing.T) {
	mem := vfs.NewMem()
	f := newFence(mem, ".", func(what, name string, err error) { t.Errorf("%s %s: %v", what, name, err) })
	f.short = func() bool { return true }
	log, err := f.Create("000001.log", vfs.WriteCategoryUnspecified)
	must(t, err)
	written := 0
	for range 10 {
		part := bytes.Repeat([]byte{1}, aheadBytes/5)
		written += len(part)
		_, err := log.Write(part)
		must(t, err)
		if got := len(readFile(t, mem, "000001.log")) - written; got < aheadBytes/2 {
			t.Errorf("%d zeros are ahead after %d bytes, want %d or more", got, written, aheadBytes/2)
		}
	}
	must(t, log.Close())
}

package disk

// A sync costs least if it changes only bytes of the file: neither its size nor blocks that were
// never written, because the file system must write what it knows of the file, too. So zeros are
// written to a log of commits ahead of its commits. The database and verifyLog take zeros, and what
// an earlier log left in a file that is used again, for the end of the log.
//
// It is also what keeps deletions possible when somebody else has filled the disk: at least half of
// the zeros are ahead when everything but deletions is refused. Nobody else can have that space.

// aheadBytes is how many zeros are written at once, in parts of zeroBytes.
const (
	aheadBytes = 256 << 10
	zeroBytes  = 32 << 10
)

// startAhead begins to write zeros ahead of what is written to a new log. In a log that is used
// again, they begin where it ended before.
func (f *fencedFile) startAhead() {
	if info, err := f.Stat(); err == nil {
		f.ahead, f.written = true, info.Size()
	}
}

// writeAhead is called before n bytes are written to a log. The log is usable without zeros.
func (f *fencedFile) writeAhead(n int) {
	if !f.ahead || f.size+int64(n)+aheadBytes/2 <= f.written {
		return
	}
	f.written = max(f.written, f.size)
	zeros := make([]byte, zeroBytes)
	for to := f.written + aheadBytes; f.written < to; {
		clear(zeros) // WriteAt may change them
		k, err := f.File.WriteAt(zeros, f.written)
		f.written += int64(k)
		if f.ahead = err == nil || noRoom(err); err != nil {
			return
		}
	}
}

package disk

import (
	"bytes"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A parity file stands beside a table and restores parts of it. The table is rows of 4 KiB,
// with a checksum each. Each row is in a group, and of each group the parity file has the
// exclusive or of its rows: one row of a group can be restored from the others. Rows that
// follow each other are in different groups, so that a run of them can be restored, too.
//
// The parity file is not synced: power may take it, and then the table has none.
const (
	paritySuffix = ".parity"
	parityMagic  = "podyard parity 1"

	rowSize    = 4 << 10
	stripeRows = 1024 // rows that share groups: 4 MiB of a table
	maxGroups  = 16   // groups of a whole stripe
	groupRows  = 16   // rows of a group, where a stripe has fewer groups
)

// errNoParity says that a table has no parity file that can be used.
var errNoParity = errors.New("disk: the table has no parity")

// isTable reports whether a file is a table, of the database or on its way into it.
func isTable(base string) bool {
	return strings.HasSuffix(base, ".sst") || strings.HasPrefix(base, stagePrefix) && !strings.HasSuffix(base, paritySuffix)
}

// groupsOf is how many groups a stripe with so many rows has: a power of two.
func groupsOf(rows int) int {
	n := 1
	for n < maxGroups && n*groupRows < rows {
		n *= 2
	}
	return n
}

// A stripe sums up the rows of one stripe.
type stripe struct {
	groups [maxGroups][rowSize]byte
	rows   int
}

// add takes a row, or a part of it that begins at an offset.
func (s *stripe) add(row, offset int, part []byte) {
	g := s.groups[row%maxGroups][offset : offset+len(part)]
	subtle.XORBytes(g, g, part)
	s.rows = max(s.rows, row+1)
}

// fold returns the groups that the stripe has with its number of rows.
func (s *stripe) fold() [][rowSize]byte {
	n := groupsOf(s.rows)
	for i := n; i < maxGroups; i++ {
		subtle.XORBytes(s.groups[i%n][:], s.groups[i%n][:], s.groups[i][:])
	}
	return s.groups[:n]
}

// A parityWriter makes the parity of a table while that is written from its first byte to
// its last.
type parityWriter struct {
	size   int64
	sums   []uint32
	stripe stripe
	parity []byte
}

func (w *parityWriter) write(p []byte) {
	for len(p) > 0 {
		row, offset := int(w.size/rowSize), int(w.size%rowSize)
		if offset == 0 {
			if row > 0 && row%stripeRows == 0 {
				w.endStripe()
			}
			w.sums = append(w.sums, 0)
		}
		part := p[:min(len(p), rowSize-offset)]
		w.sums[row] = crc32.Update(w.sums[row], castagnoli, part)
		w.stripe.add(row%stripeRows, offset, part)
		w.size += int64(len(part))
		p = p[len(part):]
	}
}

func (w *parityWriter) endStripe() {
	for _, g := range w.stripe.fold() {
		w.parity = append(w.parity, g[:]...)
	}
	w.stripe = stripe{}
}

// bytes is the parity file of what was written.
func (w *parityWriter) bytes() []byte {
	if w.stripe.rows > 0 {
		w.endStripe()
	}
	b := make([]byte, 0, len(parityMagic)+8+4*len(w.sums)+len(w.parity)+4)
	b = binary.LittleEndian.AppendUint64(append(b, parityMagic...), uint64(w.size))
	for _, s := range w.sums {
		b = binary.LittleEndian.AppendUint32(b, s)
	}
	b = append(b, w.parity...)
	return binary.LittleEndian.AppendUint32(b, checksum(nil, b))
}

// save writes the parity file of a table.
func (w *parityWriter) save(fs vfs.FS, table string) (err error) {
	f, err := fs.Create(table+paritySuffix, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.Write(w.bytes())
	return err
}

// makeParity makes a parity file for a table that is there, and right.
func makeParity(fs vfs.FS, table string) error {
	b, err := readAll(fs, table)
	if err != nil {
		return err
	}
	w := &parityWriter{}
	w.write(b)
	return w.save(fs, table)
}

// A parity is a parity file that was read.
type parity struct {
	size   int64
	sums   []byte
	groups []byte
}

func readParity(fs vfs.FS, table string) (p parity, err error) {
	b, err := readAll(fs, table+paritySuffix)
	if err != nil {
		return p, fmt.Errorf("%w: %w", errNoParity, err)
	}
	n := len(b) - 4
	if n < len(parityMagic)+8 || !bytes.HasPrefix(b, []byte(parityMagic)) || binary.LittleEndian.Uint32(b[n:]) != checksum(nil, b[:n]) {
		return p, fmt.Errorf("%w: its parity file is damaged", errNoParity)
	}
	b = b[len(parityMagic):n]
	size := binary.LittleEndian.Uint64(b)
	rows := (size + rowSize - 1) / rowSize
	if b = b[8:]; size > math.MaxInt64/2 || 4*rows > uint64(len(b)) || groupBytesOf(int(rows)) != len(b)-int(4*rows) {
		return p, fmt.Errorf("%w: its parity file has another size", errNoParity)
	}
	return parity{int64(size), b[:4*rows], b[4*rows:]}, nil
}

// groupBytesOf is how many bytes the groups of a table with so many rows have.
func groupBytesOf(rows int) int {
	n := rows / stripeRows * maxGroups
	if rest := rows % stripeRows; rest > 0 {
		n += groupsOf(rest)
	}
	return n * rowSize
}

func readAll(fs vfs.FS, name string) (b []byte, err error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return io.ReadAll(f)
}

// row is where a row of the table ends, beside its checksum.
func (p *parity) row(n int) (size int, sum uint32) {
	return int(min(rowSize, p.size-int64(n)*rowSize)), binary.LittleEndian.Uint32(p.sums[4*n:])
}

// A fix is a part of a file as it was written.
type fix struct {
	at   int64
	data []byte
}

// restore writes the damaged rows of a table anew, as far as its parity has them: so many
// were restored, so many could not be.
func restore(fs vfs.FS, table string) (restored, left int, err error) {
	p, err := readParity(fs, table)
	if err != nil {
		return 0, 0, err
	}
	fixes, left, err := p.fixes(fs, table)
	if err != nil || len(fixes) == 0 {
		return 0, left, err
	}
	return len(fixes), left, writeFixes(fs, table, fixes)
}

// writeFixes writes parts of a file anew.
func writeFixes(fs vfs.FS, name string, fixes []fix) error {
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	for _, x := range fixes {
		if _, err := f.WriteAt(x.data, x.at); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(f.Sync(), f.Close())
}

// fixes reads the table and finds what can be restored of it.
func (p *parity) fixes(fs vfs.FS, table string) (fixes []fix, left int, err error) {
	f, err := fs.Open(table, vfs.SequentialReadsOption)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	groups := p.groups
	for first, rows := 0, len(p.sums)/4; first < rows; first += stripeRows {
		n := min(stripeRows, rows-first)
		x, bad := p.stripe(f, first, n, groups[:groupsOf(n)*rowSize])
		fixes, left = append(fixes, x...), left+bad
		groups = groups[groupsOf(n)*rowSize:]
	}
	return fixes, left, nil
}

// stripe finds what can be restored of n rows. A row that cannot be read is a damaged one.
func (p *parity) stripe(f io.ReaderAt, first, n int, groups []byte) (fixes []fix, left int) {
	var good stripe
	bad := make(map[int][]int) // by group
	buf := make([]byte, rowSize)
	for k := range n {
		size, want := p.row(first + k)
		row := buf[:size]
		if m, _ := f.ReadAt(row, int64(first+k)*rowSize); m < size || checksum(nil, row) != want {
			g := k % groupsOf(n)
			bad[g] = append(bad[g], first+k)
			row = nil
		}
		good.add(k, 0, row)
	}
	sums := good.fold()
	for g, rows := range bad {
		size, want := p.row(rows[0])
		data := make([]byte, rowSize)
		subtle.XORBytes(data, sums[g][:], groups[g*rowSize:(g+1)*rowSize])
		if data = data[:size]; len(rows) > 1 || checksum(nil, data) != want {
			left += len(rows)
			continue
		}
		fixes = append(fixes, fix{int64(rows[0]) * rowSize, data})
	}
	return fixes, left
}

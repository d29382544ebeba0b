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

// A parity file is stored beside a table and can restore parts of it. A table consists of rows
// of 4 KiB. The parity file has a checksum for each row. Each row belongs to a group, and the
// parity file has the exclusive or of the rows of each group. So one row of a group can be
// restored from the others. Consecutive rows belong to different groups, so that a damaged
// range of rows can be restored, too.
//
// The parity file is not synced. A power failure may lose it; the table then has no parity.
const (
	paritySuffix = ".parity"
	parityMagic  = "podyard parity 1"

	rowSize    = 4 << 10
	stripeRows = 1024 // rows that share groups: 4 MiB of a table
	maxGroups  = 16   // groups of a full stripe
	groupRows  = 16   // rows of a group in a stripe with fewer groups
)

// errNoParity: the table has no usable parity file.
var errNoParity = errors.New("disk: the table has no parity")

// isTable reports whether a file is a table, including one that is about to be ingested.
func isTable(base string) bool {
	return strings.HasSuffix(base, ".sst") || strings.HasPrefix(base, stagePrefix) && !strings.HasSuffix(base, paritySuffix)
}

// groupsOf returns the number of groups of a stripe with that many rows: a power of two.
func groupsOf(rows int) int {
	n := 1
	for n < maxGroups && n*groupRows < rows {
		n *= 2
	}
	return n
}

// A stripe computes the groups of one stripe.
type stripe struct {
	groups [maxGroups][rowSize]byte
	rows   int
}

// add adds a row, or a part of it that begins at offset.
func (s *stripe) add(row, offset int, part []byte) {
	g := s.groups[row%maxGroups][offset : offset+len(part)]
	subtle.XORBytes(g, g, part)
	s.rows = max(s.rows, row+1)
}

// fold returns the groups for the number of rows that were added.
func (s *stripe) fold() [][rowSize]byte {
	n := groupsOf(s.rows)
	for i := n; i < maxGroups; i++ {
		subtle.XORBytes(s.groups[i%n][:], s.groups[i%n][:], s.groups[i][:])
	}
	return s.groups[:n]
}

// A parityWriter computes the parity of a table while the table is written from start to end.
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

// bytes returns the parity file of the data so far.
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

// makeParity writes a parity file for an undamaged table.
func makeParity(fs vfs.FS, table string) error {
	b, err := readAll(fs, table)
	if err != nil {
		return err
	}
	w := &parityWriter{}
	w.write(b)
	return w.save(fs, table)
}

// A parity is the content of a parity file.
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

// groupBytesOf returns the total length of the groups of a table with that many rows.
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

// row returns the length and the checksum of a row.
func (p *parity) row(n int) (size int, sum uint32) {
	return int(min(rowSize, p.size-int64(n)*rowSize)), binary.LittleEndian.Uint32(p.sums[4*n:])
}

// A fix is the right content of a part of a file.
type fix struct {
	at   int64
	data []byte
}

// restore repairs the damaged rows of a table from its parity file. It returns how many rows
// were restored and how many are still damaged.
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

// writeFixes writes the fixes to a file.
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

// fixes reads the table and returns the rows that can be restored.
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

// stripe returns the rows that can be restored among n rows. An unreadable row counts as
// damaged.
func (p *parity) stripe(f io.ReaderAt, first, n int, groups []byte) (fixes []fix, left int) {
	var good stripe
	bad := make(map[int][]int) // damaged rows, by group
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

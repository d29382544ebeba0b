package jobindex

const (
	segmentBits = 8
	minSlots    = 8
)

// segments is a hash table from a hash of 32 bits to a record, with open addressing. It is
// divided by the high bits of the hash into segments that grow and shrink one by one, so that
// no resize takes long.
type segments [1 << segmentBits]segment

// A segment has a power of two of slots. A slot is hash<<32 | record, or 0 if empty.
type segment struct {
	slots []uint64
	n     int
}

// of returns the segment of a hash. The high bits choose the segment, the low bits the slot.
func (x *segments) of(hash uint32) *segment { return &x[hash>>(32-segmentBits)] }

func (s *segment) mask() uint32 { return uint32(len(s.slots) - 1) }

// add adds a record that the segment does not have.
func (s *segment) add(hash, rec uint32) {
	if 4*(s.n+1) > 3*len(s.slots) {
		s.resize(max(2*len(s.slots), minSlots))
	}
	s.n++
	s.place(uint64(hash)<<32 | uint64(rec))
}

func (s *segment) place(e uint64) {
	p := uint32(e>>32) & s.mask()
	for s.slots[p] != 0 {
		p = (p + 1) & s.mask()
	}
	s.slots[p] = e
}

// remove removes a record that the segment has. It moves later entries up, so that no search
// ends too early.
func (s *segment) remove(hash, rec uint32) {
	mask := s.mask()
	p := hash & mask
	for s.slots[p] != uint64(hash)<<32|uint64(rec) {
		p = (p + 1) & mask
	}
	for q := (p + 1) & mask; s.slots[q] != 0; q = (q + 1) & mask {
		home := uint32(s.slots[q]>>32) & mask
		if (q-home)&mask >= (q-p)&mask {
			s.slots[p] = s.slots[q]
			p = q
		}
	}
	s.slots[p] = 0
	s.n--
	if len(s.slots) > minSlots && 8*s.n < len(s.slots) {
		s.resize(len(s.slots) / 2)
	}
}

func (s *segment) resize(size int) {
	old := s.slots
	s.slots = make([]uint64, size)
	for _, e := range old {
		if e != 0 {
			s.place(e)
		}
	}
}

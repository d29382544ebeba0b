package jobindex

import (
	"encoding/binary"

	"github.com/podyard/podyard/serverless/queue"
)

// An ident is a compact job id. An id that a Service made (a UUID with a suffix, and for
// runsync a prefix) is stored as 16 bytes, any other id as the number of an interned string.
type ident struct {
	form uint8
	bits [16]byte
}

const (
	formName uint8 = iota // the first 4 bytes are a number of the interner
	formUUID
	formSync
)

const (
	syncPrefix = "sync-"
	suffix     = "-u1"
	uuidLen    = 36
)

// pack returns the ident of an id that a Service made. ok is false for any other id.
func pack(id queue.JobID) (d ident, ok bool) {
	s := string(id)
	d.form = formUUID
	if len(s) > len(syncPrefix) && s[:len(syncPrefix)] == syncPrefix {
		s, d.form = s[len(syncPrefix):], formSync
	}
	if len(s) != uuidLen+len(suffix) || s[uuidLen:] != suffix {
		return d, false
	}
	if s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return d, false
	}
	b0, ok0 := fromHex(word(s[:8]))
	b1, ok1 := fromHex(half(s[9:13]) | half(s[14:18])<<32)
	b2, ok2 := fromHex(half(s[19:23]) | half(s[24:28])<<32)
	b3, ok3 := fromHex(word(s[28:36]))
	binary.LittleEndian.PutUint64(d.bits[:8], uint64(b0)|uint64(b1)<<32)
	binary.LittleEndian.PutUint64(d.bits[8:], uint64(b2)|uint64(b3)<<32)
	return d, ok0 && ok1 && ok2 && ok3
}

// unpack is the inverse of pack.
func (d *ident) unpack() queue.JobID {
	b := [len(syncPrefix) + uuidLen + len(suffix)]byte([]byte(syncPrefix + "00000000-0000-0000-0000-000000000000" + suffix))
	p := b[len(syncPrefix):]
	lo, hi := binary.LittleEndian.Uint64(d.bits[:8]), binary.LittleEndian.Uint64(d.bits[8:])
	x1, x2 := toHex(uint32(lo>>32)), toHex(uint32(hi))
	binary.LittleEndian.PutUint64(p, toHex(uint32(lo)))
	binary.LittleEndian.PutUint32(p[9:], uint32(x1))
	binary.LittleEndian.PutUint32(p[14:], uint32(x1>>32))
	binary.LittleEndian.PutUint32(p[19:], uint32(x2))
	binary.LittleEndian.PutUint32(p[24:], uint32(x2>>32))
	binary.LittleEndian.PutUint64(p[28:], toHex(uint32(hi>>32)))
	if d.form == formSync {
		p = b[:]
	}
	return queue.JobID(p)
}

// word returns 8 characters, the first one in the low byte, and half 4 of them.
func word(s string) uint64 { return half(s[:4]) | half(s[4:])<<32 }

func half(s string) uint64 {
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24
}

// The functions below work on 8 bytes at once: each has the value 0xnn in the constant of eight.
const eight = 0x0101010101010101

// fromHex returns the bytes of 8 lower-case hexadecimal digits.
func fromHex(x uint64) (b uint32, ok bool) {
	v := x&(0x0f*eight) + 9*(x>>6&eight) // a letter has bit 6, and its low bits are 1 to 6
	ok = v&(0xf0*eight) == 0 && digitsOf(v) == x
	v = (v<<4 | v>>8) & 0x00ff00ff00ff00ff
	v = (v | v>>8) & 0x0000ffff0000ffff
	return uint32(v | v>>16), ok
}

// toHex is the inverse of fromHex.
func toHex(b uint32) uint64 {
	v := uint64(b)
	v = (v | v<<16) & 0x0000ffff0000ffff
	v = (v | v<<8) & 0x00ff00ff00ff00ff
	return digitsOf((v>>4 | v<<8) & (0x0f * eight))
}

// digitsOf returns the digits of 8 bytes that are below 16.
func digitsOf(v uint64) uint64 {
	letters := (v + 6*eight) >> 4 & eight
	return v + '0'*eight + ('a'-'0'-10)*letters
}

package jobindex

import (
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
	bad := byte(0)
	for n, at := range &places {
		hi, lo := digits[s[at]], digits[s[at+1]]
		bad |= hi | lo
		d.bits[n] = hi<<4 | lo&15
	}
	return d, bad < 16
}

// places are the positions of the two digits of each byte in a UUID.
var places = [16]uint8{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34}

// digits has the values of lower-case hexadecimal digits, and 255 for any other byte.
var digits = digitTable()

func digitTable() (t [256]byte) {
	for c := range t {
		switch {
		case '0' <= c && c <= '9':
			t[c] = byte(c - '0')
		case 'a' <= c && c <= 'f':
			t[c] = byte(c-'a') + 10
		default:
			t[c] = 255
		}
	}
	return t
}

// unpack is the inverse of pack.
func (d *ident) unpack() queue.JobID {
	b := [len(syncPrefix) + uuidLen + len(suffix)]byte{}
	copy(b[:], "sync-00000000-0000-0000-0000-000000000000-u1")
	for n, at := range &places {
		b[len(syncPrefix)+int(at)] = hexDigits[d.bits[n]>>4]
		b[len(syncPrefix)+int(at)+1] = hexDigits[d.bits[n]&15]
	}
	if d.form == formSync {
		return queue.JobID(b[:])
	}
	return queue.JobID(b[len(syncPrefix):])
}

const hexDigits = "0123456789abcdef"

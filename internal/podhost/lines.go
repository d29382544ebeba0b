package podhost

import "bytes"

// LineEnd returns the length of the first line of b without and with its end, or -1 if it has
// none yet. A line ends with "\n", "\r\n", or the "\r" with which a progress bar begins again. A
// "\r" that is last in b may be half of a "\r\n", so it ends a line only when more has come.
func LineEnd(b []byte) (text, size int) {
	switch i := bytes.IndexAny(b, "\r\n"); {
	case i < 0, b[i] == '\r' && i == len(b)-1:
		return -1, -1
	case b[i] == '\r' && b[i+1] == '\n':
		return i, i + 2
	default:
		return i, i + 1
	}
}

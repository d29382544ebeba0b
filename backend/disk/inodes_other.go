//go:build !linux && !darwin && !freebsd

package disk

// freeInodes: the number of files is not limited, or not known.
func freeInodes(string) (free, total int64) { return 0, 0 }

// Package errno recognises failures of the operating system. Each system has its own numbers
// for them: on Windows, for example, a refused connection is WSAECONNREFUSED (10061), and
// syscall.ECONNREFUSED is a number that no call returns. So errors.Is with a number of package
// syscall is right on some systems only; the linter refuses it elsewhere.
package errno

import (
	"errors"
	"slices"
	"syscall"
)

// AddressInUse reports whether err says that another program listens at an address.
func AddressInUse(err error) bool { return is(err, addressInUse) }

// AddressNotAvailable reports whether err says that this machine does not have an address.
func AddressNotAvailable(err error) bool { return is(err, addressNotAvailable) }

// Refused reports whether err says that nobody listens at an address.
func Refused(err error) bool { return is(err, refused) }

// Reset reports whether err says that the peer has closed a connection while we used it.
func Reset(err error) bool { return is(err, reset) }

// NotADirectory reports whether err says that a file stands in a path where a directory was
// expected. Windows has no number of its own for that. It says that the path was not found,
// which is true of a missing directory as well: ask with os.Stat whether the file is there.
func NotADirectory(err error) bool { return is(err, notADirectory) }

// NoRoom reports whether err says that a file system, or the share of it that we may use, is full.
func NoRoom(err error) bool { return is(err, noRoom) }

// NoDescriptors reports whether err says that this program, or the system, has too many open files.
func NoDescriptors(err error) bool { return is(err, noDescriptors) }

func is(err error, numbers []syscall.Errno) bool {
	return slices.ContainsFunc(numbers, func(n syscall.Errno) bool { return errors.Is(err, n) })
}

package time

import "syscall"

// Now is the time of the system and PODYARD_CLOCK seconds. The monotonic time stays as it is.
func Now() Time {
	t := unmoved()
	m := t.Add(moved)
	if t.wall&hasMonotonic != 0 && m.wall&hasMonotonic != 0 {
		m.ext = t.ext
	}
	return m
}

var moved = func() Duration {
	text, _ := syscall.Getenv("PODYARD_CLOCK")
	seconds, _ := atoi(text)
	return Duration(seconds) * Second
}()

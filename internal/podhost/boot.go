package podhost

import (
	"os"
	"strings"
	"time"

	"github.com/podyard/podyard/pods"
)

// BootID is another one after each start of this machine; empty where that is not told.
func BootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id") // Linux
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// Rebooted reports whether this machine has started again since it had this BootID.
func Rebooted(since string) bool {
	now := BootID()
	return since != "" && now != "" && since != now
}

// Grace is how long the container before that of s may take to end.
func Grace(s *pods.Spec, standard time.Duration) time.Duration {
	switch {
	case s.Grace < 0:
		return 0
	case s.Grace == 0:
		return standard
	}
	return s.Grace
}

package process

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/podhost"
)

// tick is the unit of CPU time in /proc: a hundredth of a second on every architecture
// that Go runs on.
const tick = 10 * time.Millisecond

// A sampler shares one list of processes among samples of about the same time.
type sampler struct {
	mu  sync.Mutex
	at  time.Time
	all []task
}

func (s *sampler) measure(x *proc) (u podhost.CPUUsage, memory int64, ok bool) {
	at, all, err := s.list()
	if err != nil {
		return u, 0, false
	}
	u.At = at
	members := x.members(all)
	for _, t := range members {
		u.CPU += time.Duration(t.ticks) * tick
		memory += int64(t.pages) * int64(os.Getpagesize())
	}
	return u, memory, len(members) > 0
}

// list holds the lock while it reads, because concurrent callers need the same list.
func (s *sampler) list() (time.Time, []task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) > sampleAge {
		all, err := tasks()
		if err != nil {
			return s.at, nil, err
		}
		s.at, s.all = time.Now(), all
	}
	return s.at, s.all, nil
}

// An oomCounter reads how often the kernel killed a process for memory. The counter is for the
// whole machine, so it is a guess about one process, and used only for a killed one.
type oomCounter struct{}

func (oomCounter) count() uint64 {
	return field("/proc/vmstat", "oom_kill")
}

func (c oomCounter) since(before uint64) bool { return c.count() > before }

// field reads the number after a name in a file of /proc; 0 when there is none.
func field(path, name string) uint64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) > 1 && f[0] == name {
			n, _ := strconv.ParseUint(f[1], 10, 64) // the kernel writes numbers
			return n
		}
	}
	return 0
}

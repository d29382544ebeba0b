package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

var payload = []byte(`{"prompt":"` + strings.Repeat("abcdefghijklmnop", 31) + `"}`)

const bulkSize = 1000

// rate calls op from n callers for d, and returns how many calls ended in a second.
func rate(ctx context.Context, n int, d time.Duration, op func(ctx context.Context, caller int) error) (float64, error) {
	var done atomic.Int64
	var failed atomic.Pointer[error]
	var callers sync.WaitGroup
	began := time.Now()
	for c := range n {
		callers.Go(func() {
			for time.Since(began) < d && failed.Load() == nil {
				if err := op(ctx, c); err != nil {
					failed.Store(&err)
					return
				}
				done.Add(1)
			}
		})
	}
	callers.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(done.Load()) / time.Since(began).Seconds(), nil
}

// A meeting is jobs that end when n of them have started.
type meeting struct {
	n int

	mu      sync.Mutex
	started int
	all     chan struct{}
}

func (m *meeting) open() chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.started, m.all = 0, make(chan struct{})
	return m.all
}

func (m *meeting) start(ctx context.Context) error {
	m.mu.Lock()
	all := m.all
	if m.started++; m.started == m.n {
		close(all)
	}
	m.mu.Unlock()
	select {
	case <-all:
	case <-ctx.Done():
	}
	return nil
}

// rounds submits n jobs, waits until all have started, and returns how long that took, each time.
func (m *meeting) rounds(ctx context.Context, rounds int, submit func() error) (list []time.Duration, err error) {
	for range rounds {
		time.Sleep(150 * time.Millisecond) // until the workers wait again
		all := m.open()
		began := time.Now()
		for range m.n {
			if err := submit(); err != nil {
				return nil, err
			}
		}
		select {
		case <-all:
			list = append(list, time.Since(began))
		case <-time.After(time.Minute):
			return nil, fmt.Errorf("%d jobs have not all started after a minute", m.n)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return list, nil
}

func quantile(list []time.Duration, q float64) time.Duration {
	list = slices.Sorted(slices.Values(list))
	return list[min(int(q*float64(len(list))), len(list)-1)]
}

// ownCPU returns the processor time of this process.
func ownCPU() (time.Duration, error) {
	var self syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &self)
	return time.Duration(self.Utime.Nano() + self.Stime.Nano()), err
}

// cpu returns the processor time of this process and of the database, which is on this machine.
func cpu(ctx context.Context, url string) (time.Duration, error) {
	sum, err := ownCPU()
	if err != nil {
		return 0, err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(ctx) }()
	main, err := stat(int(conn.PgConn().PID()))
	if err != nil {
		return 0, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, err := stat(pid); err == nil && p.parent == main.parent {
			sum += p.own
		}
	}
	p, err := stat(main.parent)
	return sum + p.ended, err
}

// A process is what the system says of one: processor time of its own, and of its children that ended.
type process struct {
	parent     int
	own, ended time.Duration
}

func stat(pid int) (p process, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, err
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	ticks := func(i int) time.Duration {
		n, _ := strconv.Atoi(fields[i])
		return time.Duration(n) * 10 * time.Millisecond
	}
	p.parent, _ = strconv.Atoi(fields[1])
	return process{p.parent, ticks(11) + ticks(12), ticks(13) + ticks(14)}, nil
}

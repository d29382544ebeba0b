package queue_test

import (
	"cmp"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// An orderedJob is a job of the test of the order.
type orderedJob struct {
	owner, key string
	priority   int
	arrived    int    // when it got its Seq: a moment of orderedJobs.moments
	seq        uint64 // as a queue counts
	queued     queue.Instant
	running    bool
	barred     bool // for the worker that asks
	heldUntil  queue.Instant
}

func (j *orderedJob) user() string { return j.owner }

func (j *orderedJob) line() string { return fmt.Sprint(j.owner, "/", j.priority, "/", j.key) }

// expected is the naive reference of Choose. It sorts all jobs that can be claimed by the words of
// docs/decisions.md 39. served are the moments at which an owner or a line was last served.
func expected(all []*orderedJob, served map[string]int, r queue.Rules, now queue.Instant) *orderedJob {
	free := func(limit int, same func(*orderedJob) bool) bool {
		n := 0
		for _, j := range all {
			if j.running && same(j) {
				n++
			}
		}
		return limit == 0 || n < limit
	}
	list := slices.DeleteFunc(slices.Clone(all), func(j *orderedJob) bool {
		return j.running || j.barred || j.heldUntil > now || r.Paused ||
			!free(r.Total, func(*orderedJob) bool { return true }) ||
			!free(r.PerUser, func(o *orderedJob) bool { return o.owner == j.owner }) ||
			j.key != "" && !free(r.PerKey, func(o *orderedJob) bool { return o.owner == j.owner && o.key == j.key })
	})
	oldest := func(same func(*orderedJob) bool) (old *orderedJob) {
		for _, j := range list {
			if same(j) && (old == nil || j.arrived < old.arrived) {
				old = j
			}
		}
		return old
	}
	turn := func(j *orderedJob, group func(*orderedJob) string) int {
		return max(served[group(j)], oldest(func(o *orderedJob) bool { return group(o) == group(j) }).arrived)
	}
	score := func(j *orderedJob) *big.Rat {
		old := oldest(func(o *orderedJob) bool { return o.owner == j.owner && o.priority == j.priority })
		wait := big.NewRat(int64(max(now-old.queued, 0)), max(r.Ageing.Milliseconds(), 1))
		return wait.Mul(wait, big.NewRat(int64(min(r.Ageing, 1)), 1)).Add(wait, big.NewRat(int64(j.priority), 1))
	}
	slices.SortFunc(list, func(a, b *orderedJob) int {
		return cmp.Or(cmp.Compare(turn(a, (*orderedJob).user), turn(b, (*orderedJob).user)), score(b).Cmp(score(a)), b.priority-a.priority,
			cmp.Compare(turn(a, (*orderedJob).line), turn(b, (*orderedJob).line)), cmp.Compare(a.arrived, b.arrived))
	})
	return append(list, nil)[0]
}

// orderedLines hands Choose what a queue would, but finds it by looking at all jobs.
type orderedLines struct {
	all    []*orderedJob
	aside  map[*orderedJob]bool
	served map[string]queue.Turn
	rules  queue.Rules
	now    queue.Instant
}

// heads are the oldest jobs of the lines.
func (l *orderedLines) heads() map[string]*orderedJob {
	ofUser, ofKey := map[string]int{}, map[[2]string]int{}
	for _, j := range l.all {
		if j.running {
			ofUser[j.owner]++
			ofKey[[2]string{j.owner, j.key}]++
		}
	}
	heads := map[string]*orderedJob{}
	for _, j := range l.all {
		full := l.rules.PerUser > 0 && ofUser[j.owner] >= l.rules.PerUser ||
			j.key != "" && l.rules.PerKey > 0 && ofKey[[2]string{j.owner, j.key}] >= l.rules.PerKey
		if h := heads[j.line()]; !j.running && !l.aside[j] && j.heldUntil <= l.now && !full && (h == nil || j.seq < h.seq) {
			heads[j.line()] = j
		}
	}
	return heads
}

// level returns the heads of a level of the owner whose turn is first. A priority below 0 means all.
func (l *orderedLines) level(priority int) (list []*orderedJob) {
	owners, heads := map[string]uint64{}, l.heads()
	for _, j := range heads {
		if seq, ok := owners[j.owner]; !ok || j.seq < seq {
			owners[j.owner] = j.seq
		}
	}
	turn := func(j *orderedJob) queue.Turn { return l.served[j.owner].Next(owners[j.owner]) }
	for _, j := range heads {
		if len(list) > 0 && j.owner != list[0].owner {
			if turn(list[0]).Before(turn(j)) {
				continue
			}
			list = nil
		}
		list = append(list, j)
	}
	return slices.DeleteFunc(list, func(j *orderedJob) bool { return priority >= 0 && j.priority != priority })
}

func (l *orderedLines) Levels() (bits uint16) {
	for _, j := range l.level(-1) {
		bits |= 1 << j.priority
	}
	return bits
}

func (l *orderedLines) Oldest(priority int) queue.Head[*orderedJob] {
	j := slices.MinFunc(l.level(priority), func(a, b *orderedJob) int { return cmp.Compare(a.seq, b.seq) })
	return queue.Head[*orderedJob]{Job: j, Queued: j.queued, Barred: j.barred}
}

func (l *orderedLines) First(priority int) queue.Head[*orderedJob] {
	j := slices.MinFunc(l.level(priority), func(a, b *orderedJob) int {
		if l.served[a.line()].Next(a.seq).Before(l.served[b.line()].Next(b.seq)) {
			return -1
		}
		return 1
	})
	return queue.Head[*orderedJob]{Job: j, Queued: j.queued, Barred: j.barred}
}

// choose claims the next job, and advances the turns as a queue does.
func (l *orderedLines) choose(lastSeq, serial uint64) *orderedJob {
	running := 0
	for _, j := range l.all {
		if j.running {
			running++
		}
	}
	l.aside = map[*orderedJob]bool{}
	for {
		j, c := queue.Choose(l, &l.rules, running, l.now)
		switch c {
		case queue.ChoosePast:
			l.aside[j] = true
		case queue.ChooseJob:
			l.served[j.owner], l.served[j.line()] = queue.Turn{Seq: lastSeq, Serial: serial}, queue.Turn{Seq: lastSeq, Serial: serial}
			return j
		default:
			return nil
		}
	}
}

// A failure names its seed; -run TestTheOrderOfClaimsIsThatOfItsWords/seed=17 makes that walk again.
func TestTheOrderOfClaimsIsThatOfItsWords(t *testing.T) {
	ties := 0
	for seed := range uint64(200) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			n, err := orderedWalk(rand.New(rand.NewPCG(seed, 0)).IntN)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			ties += n
		})
	}
	if !t.Failed() && ties == 0 {
		t.Error("no claim had two levels that are equal")
	}
}

// orderedWalk submits, claims, ends, loses and holds jobs at random. Ages are whole parts of the ageing,
// so that levels are often equal. ties counts the claims for which they were.
func orderedWalk(draw func(n int) int) (ties int, err error) {
	ageing := [...]time.Duration{0, time.Millisecond, 3 * time.Millisecond, 7 * time.Millisecond, time.Second, time.Minute}[draw(6)]
	limit := func() int { return draw(2) * (1 + draw(6)) }
	l := &orderedLines{served: map[string]queue.Turn{}, now: 1_000_000_000, rules: queue.Rules{Ageing: ageing, PerKey: limit(), PerUser: limit(), Total: 2 * limit()}}
	moment, served, lastSeq, serial, owners := 0, map[string]int{}, uint64(0), uint64(0), 1+draw(4)
	arrive := func(j *orderedJob) {
		moment++
		lastSeq++
		j.arrived, j.seq, j.running = moment, lastSeq, false
		j.queued = l.now - queue.Instant(draw(4)*int(ageing.Milliseconds()+int64(draw(3)/2)))
	}
	for step := range 150 {
		l.now += queue.Instant(draw(2) * draw(int(ageing.Milliseconds())+2))
		switch i := draw(len(l.all) + 1); {
		case draw(2) == 0 || len(l.all) == 0:
			j := &orderedJob{owner: string(rune('a' + draw(owners))), key: [...]string{"", "", "k", "l", "m"}[draw(5)], priority: []int{5, draw(10)}[draw(2)]}
			arrive(j)
			l.all = append(l.all, j)
		case draw(3) > 0 || i == len(l.all):
			for _, j := range l.all {
				j.barred = draw(6) == 0
			}
			ties += levelsThatTie(l)
			want := expected(l.all, served, l.rules, l.now)
			if got := l.choose(lastSeq, serial+1); got != want {
				return ties, fmt.Errorf("step %d: at %d with rules %+v Choose = %+v, want %+v", step, l.now, l.rules, got, want)
			}
			if want != nil {
				moment++
				serial++
				want.running, served[want.owner], served[want.line()] = true, moment, moment
			}
		case draw(4) == 0: // the whole line is held
			for _, j := range l.all {
				if j.line() == l.all[i].line() {
					j.heldUntil = l.now + queue.Instant(draw(5000))
				}
			}
		case l.all[i].running && draw(3) == 0: // another attempt
			arrive(l.all[i])
		case l.all[i].running && draw(2) == 0: // lost with its worker: it keeps its place
			l.all[i].running = false
		default:
			l.all = slices.Delete(l.all, i, i+1)
		}
	}
	return ties, nil
}

// levelsThatTie returns 1 if two levels of the owner whose turn is first are equal at the first place.
func levelsThatTie(l *orderedLines) int {
	most, n := int64(-1), 0
	for bits, p := l.Levels(), 0; p <= queue.MaxPriority; p++ {
		if bits&(1<<p) == 0 || l.rules.Ageing == 0 {
			continue
		}
		s := int64(p)*l.rules.Ageing.Milliseconds() + int64(max(l.now-l.Oldest(p).Queued, 0))
		switch {
		case s > most:
			most, n = s, 0
		case s == most:
			n = 1
		}
	}
	return n
}

// Priority 9 that waits 56,650 ms and priority 7 that waits 176,650 ms are equal with an ageing of a
// minute: 9*60,000 + 56,650 = 7*60,000 + 176,650. In floating point they are not.
func TestAtATieTheHigherPriorityIsClaimed(t *testing.T) {
	now := queue.Instant(1_000_000)
	high := &orderedJob{priority: 9, seq: 2, queued: now - 56_650}
	low := &orderedJob{priority: 7, seq: 1, queued: now - 176_650}
	l := &orderedLines{all: []*orderedJob{low, high}, served: map[string]queue.Turn{}, now: now, rules: queue.Rules{Ageing: time.Minute}}
	if got := l.choose(2, 1); got != high {
		t.Errorf("Choose = priority %d, want 9", got.priority)
	}
	high.running = false
	high.queued++ // one millisecond less
	if got := l.choose(2, 2); got != low {
		t.Errorf("Choose = priority %d, want 7, which has waited a millisecond longer", got.priority)
	}
}

package postgres

import (
	"context"
	"iter"
)

const (
	// generationCommits is how many commits change a row of counters. Each leaves a version of the row
	// that the next one has to pass while an old transaction is open.
	generationCommits = 512
	// firstGeneration is above the slots of servers that had no generations.
	firstGeneration = 1 << 40
	// generationBits are those of a slot that number the generations of an epoch.
	generationBits = 24
)

// A counterRow is a row of counters, of an endpoint or a user, that is not used any more.
type counterRow struct {
	name string
	slot int64
}

// counterRows are rows of counters of a lane, one for each endpoint and one for each user, all of one
// generation. One transaction at a time uses them.
type counterRows struct {
	q         *Jobs
	slot      int64
	commits   int
	endpoints map[string]bool
	owners    map[string]bool
}

// rowsOf returns the rows for so many transactions at the same time.
func (q *Jobs) rowsOf(n int) (list []*counterRows) {
	for range n {
		list = append(list, &counterRows{q: q})
	}
	return list
}

// use returns the slot of the rows for a commit that changes the counters of some endpoints and users.
// Calls are made one after the other.
func (r *counterRows) use(epoch int64, endpoints, owners iter.Seq[string]) int64 {
	if r.commits%r.q.sizes.generation == 0 {
		r.next(epoch)
	}
	r.commits++
	for ep := range endpoints {
		r.endpoints[ep] = true
	}
	for owner := range owners {
		r.owners[owner] = true
	}
	return r.slot
}

// next begins a generation, and has the rows of the last one folded.
func (r *counterRows) next(epoch int64) {
	r.q.mu.Lock()
	defer r.q.mu.Unlock()
	for ep := range r.endpoints {
		r.q.retired = append(r.q.retired, counterRow{ep, r.slot})
	}
	for owner := range r.owners {
		r.q.retiredHolders = append(r.q.retiredHolders, counterRow{owner, r.slot})
	}
	r.endpoints, r.owners = map[string]bool{}, map[string]bool{}
	r.slot = generationOf(epoch) + r.q.generation%(1<<generationBits)
	r.q.generation++
}

// generationOf is the slot of the first generation of an epoch.
func generationOf(epoch int64) int64 { return firstGeneration + epoch<<generationBits }

// Every foldSweeps sweeps, counters are folded that no writer uses: also those of all but the last
// keptEpochs openings of stores.
const (
	foldSweeps  = 64
	looseSweeps = 8 // for what users hold: each submit reads all of their rows
	keptEpochs  = 32
	oldSlots    = 3 // of an epoch, at servers that had no generations
)

// fold adds up counters that no writer uses.
func (q *Jobs) fold(ctx context.Context) error {
	if err := q.foldRetired(ctx, sqlFoldRows, &q.retired); err != nil {
		return err
	}
	if err := q.foldRetired(ctx, sqlFoldHoldingRows, &q.retiredHolders); err != nil {
		return err
	}
	n := q.sweeps.Add(1) - 1 // the first sweep finds what was left
	if n%q.sizes.looseSweeps == 0 {
		if err := q.exec(ctx, sqlFoldLooseHoldings); err != nil {
			return err
		}
	}
	if n%q.sizes.foldSweeps != 0 {
		return nil
	}
	epoch, err := q.node(ctx)
	if err != nil {
		return err
	}
	before := max(epoch-q.sizes.keptEpochs, 0)
	if err := q.exec(ctx, sqlFold, before*oldSlots, generationOf(before)); err != nil {
		return err
	}
	return q.exec(ctx, sqlFoldHoldings, generationOf(before))
}

// foldRetired adds up the rows of the generations of this Store that are over.
func (q *Jobs) foldRetired(ctx context.Context, sql string, retired *[]counterRow) error {
	q.mu.Lock()
	rows := *retired
	*retired = nil
	q.mu.Unlock()
	if len(rows) == 0 {
		return nil
	}
	name, slot := make([][]byte, len(rows)), make([]int64, len(rows))
	for i, r := range rows {
		name[i], slot[i] = []byte(r.name), r.slot
	}
	err := q.exec(ctx, sql, name, slot)
	if err != nil {
		q.mu.Lock()
		*retired = append(*retired, rows...)
		q.mu.Unlock()
	}
	return err
}

package serverlesstest

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/workers"
)

// TestPresence runs every rule of workers.Presence on stores that open returns: two of one new,
// empty store, as two servers have them. They may be the same value.
func TestPresence(t *testing.T, open func(t *testing.T) [2]workers.Presence) {
	for _, c := range []struct {
		name, why string
		run       func(k *presenceFixture)
	}{
		{"RowsAreReadOnAnyServer", "List returns the rows of all servers, ordered by endpoint, worker and server", rowsAreRead},
		{"ARowReplacesTheLast", "a row takes the place of that of the same worker and server, whole", rowsAreReplaced},
		{"ARowEnds", "a row is not listed from its end on", rowsEnd},
		{"AWorkerIsRemovedForAll", "Remove deletes the rows that all servers have of a worker, and no other", rowsAreRemoved},
	} {
		suite.Run(t, c.name, c.why, func(t *testing.T) {
			list := open(t)
			c.run(&presenceFixture{T: t, a: list[0], b: list[1]})
		})
	}
}

type presenceFixture struct {
	*testing.T
	a, b workers.Presence
}

func row(endpoint string, id queue.WorkerID, server string) workers.Row {
	return workers.Row{
		Key: workers.Key{Endpoint: endpoint, ID: id}, Server: server, AliveUntil: start + lease, IdleSince: start - 5,
		Served: true, Polling: true, Draining: true, Local: true, Unhealthy: "gpu: 79 \u00b0C",
		Stops: []workers.Stop{{Job: "a", Since: start - 1}, {Job: "b", Since: start - 2}},
	}
}

func (k *presenceFixture) put(p workers.Presence, rows ...workers.Row) {
	k.Helper()
	if err := p.Put(k.Context(), start, rows); err != nil {
		k.Fatalf("Put = %v, want nil", err)
	}
}

func (k *presenceFixture) want(now queue.Instant, want ...workers.Row) {
	k.Helper()
	for name, p := range map[string]workers.Presence{"one": k.a, "other": k.b} {
		got, err := p.List(k.Context(), now)
		if err != nil {
			k.Fatalf("List = %v, want nil", err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			k.Errorf("rows at the %s server (-want +got):\n%s", name, diff)
		}
	}
}

func rowsAreRead(k *presenceFixture) {
	k.want(start)
	k.put(k.a, row("f", "w", "1"), row("e", "w", "1"))
	k.put(k.b, row("e", "w", "0"), row("e", "v", "0"))
	k.put(k.b)
	k.want(start, row("e", "v", "0"), row("e", "w", "0"), row("e", "w", "1"), row("f", "w", "1"))
}

func rowsAreReplaced(k *presenceFixture) {
	k.put(k.a, row("e", "w", "1"), row("e", "w", "2"))
	next := workers.Row{Key: workers.Key{Endpoint: "e", ID: "w"}, Server: "1", AliveUntil: start + 2*lease}
	k.put(k.b, next)
	k.want(start, next, row("e", "w", "2"))
}

func rowsEnd(k *presenceFixture) {
	longer := row("e", "v", "1")
	longer.AliveUntil++
	k.put(k.a, row("e", "w", "1"), longer)
	k.want(start+lease-1, longer, row("e", "w", "1"))
	k.want(start+lease, longer)
	k.want(start + lease + 1)
}

func rowsAreRemoved(k *presenceFixture) {
	for i := range 3 {
		k.put(k.a, row("e", queue.WorkerID(fmt.Sprint("w", i)), "1"))
		k.put(k.b, row("e", queue.WorkerID(fmt.Sprint("w", i)), "2"))
	}
	k.put(k.a, row("f", "w1", "1"))
	if err := k.b.Remove(k.Context(), []workers.Key{{Endpoint: "e", ID: "w1"}, {Endpoint: "e", ID: "w2"}, {Endpoint: "e", ID: "unknown"}}); err != nil {
		k.Fatalf("Remove = %v, want nil", err)
	}
	k.want(start, row("e", "w0", "1"), row("e", "w0", "2"), row("f", "w1", "1"))
}

package shard_test

import (
	"context"
	"fmt"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/shard"
	"github.com/podyard/podyard/serverless/queue"
)

// Two queues as one. With databases, Jobs is that of a postgres.Store, and Control the Servers of the
// database that also has all other records. Run is called beside the service.
func Example() {
	ctx := context.Background()
	q, err := shard.New(ctx, shard.Options{
		Shards:  []shard.Shard{{Name: "db1", Jobs: memory.NewJobs()}, {Name: "db2", Jobs: memory.NewJobs()}},
		Control: memory.NewServers(),
		Server:  "server-1",
	})
	check(err)
	ref := queue.Ref{Endpoint: "captions", ID: "job-1"}
	check(q.Enqueue(ctx, []queue.Job{{Ref: ref, State: queue.State{Submitted: 1, Expires: 1000}}}))
	p, err := q.Placement(ctx, "captions")
	check(err)
	fmt.Println("on", p.Shard)

	// New jobs of the endpoint go to the other database. The ones that are there end where they are.
	check(q.Move(ctx, "captions", "db1"))
	p, err = q.Placement(ctx, "captions")
	check(err)
	fmt.Println("on", p.Shard, "and until it is empty on", p.From)
	j, err := q.Get(ctx, 2, ref)
	check(err)
	fmt.Println(j.ID)
	// Output:
	// on db2
	// on db1 and until it is empty on db2
	// job-1
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Package fault makes stores, queues and runtimes fail, by name and from a seed. It
// wraps any of them; a [Plan] says which calls fail, and how.
//
//	plan := fault.NewPlan(7, fault.Rule{Name: "full", Call: "jobs.Enqueue", Kind: fault.Before, Probability: 0.1})
//	queue := fault.Jobs(memory.NewJobs(), plan)
//
// A call is named after what is wrapped and its method: jobs.Claim, pods.Create,
// endpoints.Get, registries.List, templates.Public, volumes.Update, accounts.All, sshkeys.SetSSHKeys,
// billing.Record, runtime.Ensure. In a rule's Call, '*' stands for any characters.
//
// [JobQueue.Damage] makes the input of one job unreadable.
//
// # What clients are answered
//
// A fault answers what the real failure answers. Its error has a kind of package
// problem, and services and handlers treat it as they always do:
//
//   - A store or queue that fails (Before, After, a crash) is problem.Unavailable: 503
//     over HTTP. The fault store-unavailable of the test double (httpapi/double) is
//     this one, on every store.
//   - Hosts without room (Full, or pods.ErrNoCapacity of pods.Claimed) are
//     pods.ErrNoCapacity: 400 over HTTP for a pod; a worker waits for capacity. The
//     fault no-capacity of the double is this one.
//   - An error of the rule's own (Rule.Err) has the kind that it is made with; an error
//     without a kind is problem.Internal: 500.
//
// One engine decides in both packages which fault happens, how often and how likely,
// with the same seeds. A test that fails should print its plan, which contains the
// seed.
//
// Wrappers hide nothing: each has Unwrap, so that pods.As finds the optional methods of
// a runtime behind one. Those methods do not fail.
package fault

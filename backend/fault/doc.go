// Package fault makes stores, queues and runtimes fail. It wraps any of them. A [Plan]
// decides by call name and seed which calls fail, and how.
//
//	plan := fault.NewPlan(7, fault.Rule{Name: "full", Call: "jobs.Enqueue", Kind: fault.Before, Probability: 0.1})
//	queue := fault.Jobs(memory.NewJobs(), plan)
//
// The name of a call consists of what is wrapped and its method: jobs.Claim, pods.Create,
// endpoints.Get, registries.List, templates.Public, volumes.Update, accounts.All,
// secrets.Get, schedules.Update, batches.Update, sshkeys.SetSSHKeys, billing.Record, runtime.Ensure. In Rule.Call, '*' matches any
// characters.
//
// [JobQueue.Damage] makes the input of one job unreadable.
//
// # Errors of faults
//
// A fault returns the error that a real failure returns. The error has a kind of package
// problem, and services and handlers treat it as usual:
//
//   - A store or queue that fails (Before, After, a crash) is problem.Unavailable: 503
//     over HTTP. The fault store-unavailable of the test double (httpapi/double) is
//     this one, on every store.
//   - Hosts without room (Full, or pods.ErrNoCapacity of pods.Claimed) are
//     pods.ErrNoCapacity: 400 over HTTP for a pod; a worker waits for capacity. The
//     fault no-capacity of the double is this one.
//   - An error of the rule (Rule.Err) keeps its kind. An error without a kind is
//     problem.Internal: 500.
//
// This package and httpapi/double use one engine that decides which fault happens, how
// often and with what probability. The same seed gives the same decisions. A test that
// fails should print its plan, which contains the seed.
//
// Each wrapper has Unwrap, so that pods.As finds the optional methods of a wrapped runtime.
// Those methods do not fail.
package fault

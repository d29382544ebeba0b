// Package fault makes stores, queues and runtimes fail, by name and from a seed: it wraps
// any of them, and a [Plan] says which calls fail, and how.
//
//	plan := fault.NewPlan(7, fault.Rule{Name: "full", Call: "jobs.Enqueue", Kind: fault.Before, Odds: 0.1})
//	queue := fault.Jobs(memory.NewJobs(), plan)
//
// A call is named after what is wrapped and its method: jobs.Claim, pods.Create,
// endpoints.Get, registries.List, runtime.Ensure. A rule's Call may end in *.
//
// Besides, [JobQueue.Damage] has the input of one job be unreadable.
//
// Wrappers hide nothing: each has Unwrap, so that pods.As finds the optional powers of a
// runtime behind one, and those powers do not fail.
package fault

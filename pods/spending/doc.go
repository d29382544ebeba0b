// Package spending carries out the budgets in money of users (docs/decisions.md 56): it refuses what
// would cost more an hour than its owner may spend, warns a day and an hour before the budget of the
// month is used up, and stops the pods of its owner then. The rule is [budget.Cost.Judge]; what was
// used is that of pods/billing.
//
// Every server judges every user, by the same records. What one of them has done the others find
// done, so several servers over one store do what one does, and a restart repeats nothing.
package spending

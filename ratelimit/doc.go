// Package ratelimit counts requests and refuses those above a limit. It has no clock and no
// goroutines: every call gets the time.
//
// [Windows] are the quotas of the control API: the requests of a user in a minute, an hour
// and a day (docs/interface.md 7 and 8.4). [Rates] are the limits of the
// jobs API: the requests of a user per 10 seconds and at once, for each endpoint and
// operation (docs/interface.md 8.3). Both answer with a [Decision], which formats the
// headers RateLimit and RateLimit-Policy.
//
// Call them only with authenticated users and existing endpoints, because their memory grows
// with the number of these. They forget a user when that no longer changes an answer. Do not
// call them for an exempt user.
package ratelimit

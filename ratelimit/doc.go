// Package ratelimit counts requests and says no. It has no clock and starts nothing:
// every call is given the time.
//
// [Windows] are the quotas of the control API: so many requests of a user in a minute,
// an hour and a day (sections 7 and 8.4 of the interface). [Rates] are the limits of
// the jobs API: so many requests of a user per 10 seconds, and so many at once, for each
// endpoint and operation (section 8.3). Both answer with a [Decision], which writes the
// headers RateLimit and RateLimit-Policy.
//
// Give both of them users that have proved who they are and endpoints that exist:
// what they remember grows with the number of these, and is forgotten once it no longer
// changes an answer. A caller that is exempt is not asked about.
package ratelimit

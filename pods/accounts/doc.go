// Package accounts keeps the API keys of users that are made, changed and revoked while a
// service runs (docs/decisions.md 35).
//
// A [Service] has the rules: who gives which scopes to whom, what may become of a key, and
// that there is always an operator's key. Of a secret it keeps only the digest: [Service.Create]
// and [Service.Rotate] return the secret once, and nobody can read it again.
//
// [Service.Authenticate] looks a secret up in an index in memory. A key that is deleted,
// changed or rotated counts as that from the moment the call returns. So a store belongs to
// one service at a time, unless it is [Shared]: then other services know within a second.
package accounts

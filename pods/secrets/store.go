package secrets

import "github.com/podyard/podyard/problem/idempotency"

// A Store keeps secrets; lists are without their values. A store that writes values anywhere seals
// them.
type Store interface {
	idempotency.Records[Secret]
}

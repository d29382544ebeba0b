package volumes

import "github.com/podyard/podyard/problem/idempotency"

// A Store keeps volumes.
type Store interface {
	idempotency.Records[Volume]
}

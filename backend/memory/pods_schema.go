package memory

import (
	"encoding/binary"

	"github.com/hashicorp/go-memdb"

	"github.com/podyard/podyard/pods"
)

const (
	podTable            = "pod"
	podOwnedTable       = "owned"
	podClaimTable       = "claim"
	podReservationTable = "reservation"
)

// A podOwned says that a pod belongs to an owner. It is apart from the pod, because a changed
// record is written to all indexes of its table, and the owner never changes.
type podOwned struct{ owner, id string }

func podOwnedOf(p *pods.Pod) *podOwned { return &podOwned{p.Owner, p.ID} }

// A podClaimed is the sum of the claims on a resource, by pods and reservations.
type podClaimed struct {
	resource string
	units    int64
}

// podSchema has indexes for the pods by id and by owner, the claims and the reservations.
// There are no others, such as by host: listing by host is rare and scans all pods, while
// every change of a pod would pay for an index.
func podSchema() *memdb.DBSchema {
	tables := make(map[string]*memdb.TableSchema)
	for name, key := range map[string]podKey{
		podTable:            func(v any) string { return v.(*pods.Pod).ID },
		podOwnedTable:       func(v any) string { p := v.(*podOwned); return podOwner(p.owner) + p.id },
		podClaimTable:       func(v any) string { return v.(*podClaimed).resource },
		podReservationTable: func(v any) string { return v.(*pods.Reservation).Holder },
	} {
		tables[name] = &memdb.TableSchema{Name: name, Indexes: map[string]*memdb.IndexSchema{
			"id": {Name: "id", Unique: true, Indexer: key},
		}}
	}
	return &memdb.DBSchema{Tables: tables}
}

// podOwner returns the key prefix of an owner's pods. It begins with the length of the owner,
// so that no prefix is a prefix of another owner's.
func podOwner(owner string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(owner)))) + owner
}

// A podKey is an index by one string. Unlike memdb's own index it uses no reflection.
type podKey func(any) string

// FromObject implements memdb.SingleIndexer.
func (k podKey) FromObject(v any) (bool, []byte, error) { return true, podTerminated(k(v)), nil }

// FromArgs implements memdb.Indexer.
func (k podKey) FromArgs(args ...any) ([]byte, error) { return podTerminated(args[0].(string)), nil }

// PrefixFromArgs implements memdb.PrefixIndexer.
func (k podKey) PrefixFromArgs(args ...any) ([]byte, error) { return []byte(args[0].(string)), nil }

// podTerminated ends a key with a zero byte, so that no key is a prefix of another.
func podTerminated(s string) []byte { return append([]byte(s), 0) }

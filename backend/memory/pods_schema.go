package memory

import (
	"encoding/binary"

	"github.com/hashicorp/go-memdb"

	"github.com/podyard/podyard/pods"
)

const (
	podTable      = "pod"
	podOwnedTable = "owned"
	podClaimTable = "claim"
	podHoldTable  = "hold"
)

// podOwned says that a pod is its owner's. It is apart from the pod because a record is
// written into all indexes of its table whenever it changes, and this never does.
type podOwned struct{ owner, id string }

func podOwnedOf(p *pods.Pod) *podOwned { return &podOwned{p.Owner, p.ID} }

// podClaimed is how much of a resource pods and holds have together.
type podClaimed struct {
	resource string
	units    int64
}

// podSchema finds a pod by its id, the pods of an owner, and what is claimed and held. There
// are no other indexes, of hosts for one: all pods are looked through and put in order where
// those are listed, which is seldom, and every change of a pod would pay for them.
func podSchema() *memdb.DBSchema {
	tables := make(map[string]*memdb.TableSchema)
	for name, key := range map[string]podKey{
		podTable:      func(v any) string { return v.(*pods.Pod).ID },
		podOwnedTable: func(v any) string { p := v.(*podOwned); return podOwner(p.owner) + p.id },
		podClaimTable: func(v any) string { return v.(*podClaimed).resource },
		podHoldTable:  func(v any) string { return v.(*pods.Hold).Holder },
	} {
		tables[name] = &memdb.TableSchema{Name: name, Indexes: map[string]*memdb.IndexSchema{
			"id": {Name: "id", Unique: true, Indexer: key},
		}}
	}
	return &memdb.DBSchema{Tables: tables}
}

// podOwner begins the keys of an owner's pods: with the length of the owner, so that no
// owner is the beginning of another.
func podOwner(owner string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(owner)))) + owner
}

// podKey is an index by one string. Unlike that of memdb it does not reflect.
type podKey func(any) string

// FromObject implements memdb.SingleIndexer.
func (k podKey) FromObject(v any) (bool, []byte, error) { return true, podTerminated(k(v)), nil }

// FromArgs implements memdb.Indexer.
func (k podKey) FromArgs(args ...any) ([]byte, error) { return podTerminated(args[0].(string)), nil }

// PrefixFromArgs implements memdb.PrefixIndexer.
func (k podKey) PrefixFromArgs(args ...any) ([]byte, error) { return []byte(args[0].(string)), nil }

// podTerminated keeps one key from being the beginning of another.
func podTerminated(s string) []byte { return append([]byte(s), 0) }

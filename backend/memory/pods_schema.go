package memory

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/hashicorp/go-memdb"

	"github.com/podyard/podyard/pods"
)

const (
	podTable      = "pod"
	podPlaceTable = "place"
	podClaimTable = "claim"
	podHoldTable  = "hold"
)

// podPlace is where a pod stands in the listings. It is apart from the pod because a
// record is written into all indexes of its table, and this changes only with the host.
type podPlace struct {
	id      string
	owner   string
	host    string
	created time.Time
}

func podPlaceOf(p *pods.Pod) *podPlace {
	return &podPlace{p.ID, p.Owner, p.Placement.Host, p.Created}
}

// podClaimed is how much of a resource pods and holds have together.
type podClaimed struct {
	resource string
	units    int64
}

// podSchema lists the pods of an owner, of a host, and all of them by Created, then ID.
func podSchema() *memdb.DBSchema {
	key := func(of func(any) string) map[string]*memdb.IndexSchema {
		return map[string]*memdb.IndexSchema{"id": {Name: "id", Unique: true, Indexer: podKey(of)}}
	}
	places := key(func(v any) string { return v.(*podPlace).id })
	for name, group := range map[string]func(*podPlace) string{
		"all":   func(*podPlace) string { return podAll },
		"owner": func(p *podPlace) string { return p.owner },
		"host":  func(p *podPlace) string { return p.host },
	} {
		places[name] = &memdb.IndexSchema{Name: name, Unique: true, AllowMissing: true, Indexer: podOrder{group}}
	}
	return &memdb.DBSchema{Tables: map[string]*memdb.TableSchema{
		podTable:      {Name: podTable, Indexes: key(func(v any) string { return v.(*pods.Pod).ID })},
		podPlaceTable: {Name: podPlaceTable, Indexes: places},
		podClaimTable: {Name: podClaimTable, Indexes: key(func(v any) string { return v.(*podClaimed).resource })},
		podHoldTable:  {Name: podHoldTable, Indexes: key(func(v any) string { return v.(*pods.Hold).Holder })},
	}}
}

// podAll is the group of all pods.
const podAll = "all"

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

// podOrder is an index by a group, in it by Created, and then by ID. A pod of the group ""
// is not in it.
type podOrder struct{ group func(*podPlace) string }

// FromObject implements memdb.SingleIndexer.
func (o podOrder) FromObject(v any) (bool, []byte, error) {
	p := v.(*podPlace)
	group := o.group(p)
	if group == "" {
		return false, nil, nil
	}
	key := podGroup(group, 12+len(p.id))
	// The sign bit is turned so that instants before 1970 come first.
	key = binary.BigEndian.AppendUint64(key, uint64(p.created.Unix())^1<<63)
	key = binary.BigEndian.AppendUint32(key, uint32(p.created.Nanosecond()))
	return true, append(key, p.id...), nil
}

// FromArgs implements memdb.Indexer; look-ups are by group alone.
func (o podOrder) FromArgs(args ...any) ([]byte, error) {
	if len(args) == 0 {
		return nil, nil
	}
	return o.PrefixFromArgs(args...)
}

// PrefixFromArgs implements memdb.PrefixIndexer.
func (o podOrder) PrefixFromArgs(args ...any) ([]byte, error) {
	group, ok := args[0].(string)
	if !ok {
		return nil, fmt.Errorf("memory: a group of pods is a %T", args[0])
	}
	return podGroup(group, 0), nil
}

// podGroup begins a key with the length of the group, so that no group is the beginning
// of another.
func podGroup(group string, more int) []byte {
	key := make([]byte, 0, 4+len(group)+more)
	key = binary.BigEndian.AppendUint32(key, uint32(len(group)))
	return append(key, group...)
}

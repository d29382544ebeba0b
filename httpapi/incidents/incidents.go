// Package incidents says what is wrong with a server: causes and not symptoms, the most severe first, each
// with who is affected and one act (docs/trouble.md). [List] is a pure function of a [Survey];
// [Keeper] remembers since when each incident lasts. The state for operators, the console, podyard top and
// the metrics show the same list.
package incidents

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Severity says how soon somebody must act.
type Severity string

// The severities, the most severe first.
const (
	Critical Severity = "critical" // now
	Warning  Severity = "warning"  // today
	Note     Severity = "note"     // whoever owns it
)

// A Cause is what is wrong.
type Cause string

// The causes, in the order in which incidents of one severity are listed: what breaks more comes first.
const (
	Database    Cause = "database"    // the database does not answer
	Store       Cause = "store"       // the store refuses new work: damage
	Disk        Cause = "disk"        // the disk is full, or nearly
	ServerLost  Cause = "serverLost"  // another server of the same stores has died
	Certificate Cause = "certificate" // it ends soon
	Clock       Cause = "clock"       // it jumped in the last hour
	Image       Cause = "image"       // no process of a worker's image can be started
	CrashLoop   Cause = "crashLoop"   // workers end before they have done a job
	HostFull    Cause = "hostFull"    // workers or pods wait for room
	Receiver    Cause = "receiver"    // a receiver of webhooks fails or hangs
	NoWorker    Cause = "noWorker"    // jobs wait, and nobody takes them
	SlowQueue   Cause = "slowQueue"   // jobs wait for long although workers work
	CostSpent   Cause = "costSpent"   // what a user may spend in a month is used up, or soon is
	PodsFailed  Cause = "podsFailed"  // pods of a user have failed
)

var causes = []Cause{Database, Store, Disk, ServerLost, Certificate, Clock, Image, CrashLoop, HostFull, Receiver, NoWorker, SlowQueue, CostSpent, PodsFailed}

// Causes returns all causes in their order.
func Causes() []Cause { return slices.Clone(causes) }

// An Incident is one cause of trouble.
type Incident struct {
	Cause    Cause
	Severity Severity
	Kind     string    // what ID names: endpoint, host, receiver, server or user; empty: this server
	ID       string    // cut at MaxName runes
	Name     string    // for people, cut at MaxName runes
	Owner    string    // whose it is; empty: the operator's
	Since    time.Time // as far as it is known
	Who      []string  // users who are affected, at most MaxWho; empty: everybody
	More     int       // users who are not in Who
	Act      string    // what to do
	Detail   string    // what is known, cut at MaxDetail runes
}

// Bounds of a list.
const (
	MaxIncidents = 50 // the least severe of more are left out
	MaxName      = 40
	MaxDetail    = 400
	MaxWho       = 5
	MaxOfUser    = 5 // incidents of one cause of one user: others must have room
)

// Key says which incident it is, however its numbers change.
func (i *Incident) Key() string { return string(i.Cause) + "\x00" + i.Kind + "\x00" + i.ID }

// sort brings a list into its order and cuts it.
func sort(list []Incident) []Incident {
	slices.SortStableFunc(list, func(a, b Incident) int {
		return cmp.Or(
			cmp.Compare(rank(a.Severity), rank(b.Severity)),
			cmp.Compare(slices.Index(causes, a.Cause), slices.Index(causes, b.Cause)),
			a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
	list = fewOfEach(list)
	return list[:min(len(list), MaxIncidents)]
}

// fewOfEach leaves MaxOfUser incidents of a cause and a user in a sorted list. The last one says how many
// more there are.
func fewOfEach(list []Incident) []Incident {
	type kind struct {
		owner string
		cause Cause
	}
	count, last := map[kind]int{}, map[kind]int{}
	few := list[:0]
	for _, i := range list {
		k := kind{i.Owner, i.Cause}
		if count[k]++; i.Owner != "" && count[k] > MaxOfUser {
			continue
		}
		last[k] = len(few)
		few = append(few, i)
	}
	for k, n := range count {
		if more := n - MaxOfUser; k.owner != "" && more > 0 {
			i := &few[last[k]]
			i.Act = fmt.Sprintf("%s There are %d more like this.", i.Act, more)
		}
	}
	return few
}

func rank(s Severity) int { return slices.Index([]Severity{Critical, Warning, Note}, s) }

// cut returns s without what is no text, and with at most n runes.
func cut(s string, n int) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s))
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// affect sets who is affected.
func (i *Incident) affect(users map[string]bool) {
	delete(users, "")
	for u := range users {
		i.Who = append(i.Who, cut(u, MaxName))
	}
	slices.Sort(i.Who)
	if i.More = max(len(i.Who)-MaxWho, 0); i.More > 0 {
		i.Who = i.Who[:MaxWho]
	}
}

// For returns what a user who is no operator may know: what is wrong with his own, and that there is no
// room for it, without who has the room.
func For(list []Incident, user string) (own []Incident) {
	for _, i := range list {
		switch {
		case user == "":
		case i.Owner == user:
			i.Who, i.More = nil, 0
			own = append(own, i)
		case i.Cause == Receiver && slices.Contains(i.Who, cut(user, MaxName)):
			i.Who, i.More = nil, 0
			own = append(own, i)
		case i.Cause == HostFull && slices.Contains(i.Who, cut(user, MaxName)):
			i.ID, i.Name, i.Who, i.More = "", "", nil, 0
			i.Detail, i.Act = "Your workers wait for room that others have.", "Wait, or ask whoever runs the server for more hosts."
			own = append(own, i)
		}
	}
	return own
}

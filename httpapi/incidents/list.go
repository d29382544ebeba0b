package incidents

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Survey is what a server knows of itself at an instant.
type Survey struct {
	At          time.Time
	Refuses     string // why the store takes no new work; empty: it does
	InDatabase  bool   // the store is a database
	Short       bool   // Refuses is for lack of disk space
	Warning     string // that the disk is nearly full
	Hosts       []Host
	Endpoints   []Endpoint
	Receivers   []Route
	Failed      []Pod // that have failed
	PodsWaiting int   // pods that wait for a host
	Jumped      time.Duration
	JumpedAt    time.Time // zero: the clock has not jumped
	Certificate time.Time // its end; zero: there is none
	Lost        []LostServer
	Costs       []Cost
}

// A Cost is a user whose budget of a month is used up, or soon is.
type Cost struct {
	Owner  string
	Spent  bool
	Ends   time.Time // at the present rate; zero: it is spent
	Detail string    // how much of how much
}

// A Host is a host with who has it.
type Host struct {
	ID       string
	Cordoned bool
	Full     []string       // what it has none left of: "vcpu 8 of 8"
	Workers  map[string]int // by endpoint
	Pods     map[string]int // by user
}

// An Endpoint is an endpoint with its jobs and workers.
type Endpoint struct {
	ID, Name, Owner string
	Paused          bool // its owner wants no work: its queue is paused, or its maximum is 0, or it is cordoned
	Ready           int64
	Running         int64
	Oldest          time.Time // since when the oldest ready job waits; zero: none
	Working         int       // workers that are idle or have a job
	Starting        int
	Throttled       int
	Fails           int // workers in a row that ended before they had done a job
	Unborn          bool
	FailsSince      time.Time
	Why             string // of the last of them
	Next            time.Time
	Most            string // the user who has most of the jobs that wait; empty: it is not known
	Users           map[string]bool
}

// A Route is a receiver of webhooks that fails or does not answer one user.
type Route struct {
	Host, Owner string
	Failures    int
	Since       time.Time
}

// A Pod is a pod that has failed.
type Pod struct{ Name, Owner, Reason string }

// A LostServer is a server that has died.
type LostServer struct {
	Name  string
	Since time.Time
}

// Bounds from which something is an incident.
const (
	slowAfter       = 5 * time.Minute // an oldest job that waits for so long
	slowJobs        = 10_000          // or so many that wait
	nobodyAfter     = 30 * time.Second
	crashes         = 2
	jumpFor         = time.Hour
	certificateSoon = 14 * 24 * time.Hour
	certificateNow  = 2 * 24 * time.Hour
)

// List returns what is wrong, the most severe first: at most MaxIncidents. It is pure.
func List(s *Survey) []Incident {
	list := slices.Concat(s.store(), s.lost(), s.certificate(), s.clock())
	if s.Refuses != "" && s.InDatabase {
		return sort(list) // everything else is its consequence, or not known
	}
	for i := range s.Endpoints {
		list = append(list, s.Endpoints[i].incidents(s.At)...)
	}
	return sort(slices.Concat(list, s.full(), s.receivers(), s.costs(), s.pods()))
}

func (s *Survey) store() []Incident {
	i := Incident{Severity: Critical, Detail: cut(s.Refuses, MaxDetail)}
	switch {
	case s.Refuses != "" && s.InDatabase:
		i.Cause, i.Act = Database, "Start the database, or look at the network between it and the server."
	case s.Refuses != "" && s.Short:
		i.Cause, i.Act = Disk, "Free space on the disk of the store: erase jobs of who keeps most, or make the disk larger."
	case s.Refuses != "":
		i.Cause, i.Act = Store, "Stop the server, and run it with -check, then with -repair (docs/trouble.md)."
	case s.Warning != "":
		i.Cause, i.Severity, i.Detail = Disk, Warning, cut(s.Warning, MaxDetail)
		i.Act = "Free space on the disk of the store, or make it larger."
	default:
		return nil
	}
	return []Incident{i}
}

func (s *Survey) lost() (list []Incident) {
	for _, x := range s.Lost {
		list = append(list, Incident{
			Cause: ServerLost, Severity: Critical, Kind: "server", ID: cut(x.Name, MaxName), Name: cut(x.Name, MaxName), Since: x.Since,
			Act: "Start it again. The other servers go on with its jobs.", Detail: "The server has not been heard of.",
		})
	}
	return list
}

func (s *Survey) certificate() []Incident {
	left := s.Certificate.Sub(s.At)
	if s.Certificate.IsZero() || left > certificateSoon {
		return nil
	}
	i := Incident{Cause: Certificate, Severity: Warning, Act: "Put a new certificate in place of the file, and reload the configuration."}
	if left <= certificateNow {
		i.Severity = Critical
	}
	if i.Detail = "The certificate of the server ends " + s.Certificate.UTC().Format(time.RFC3339) + "."; left <= 0 {
		i.Detail = "The certificate of the server has ended " + s.Certificate.UTC().Format(time.RFC3339) + "."
	}
	return []Incident{i}
}

func (s *Survey) clock() []Incident {
	if s.JumpedAt.IsZero() || s.At.Sub(s.JumpedAt) > jumpFor || s.At.Before(s.JumpedAt) {
		return nil
	}
	detail := fmt.Sprintf("The clock jumped forward by %v: jobs may have timed out.", s.Jumped.Round(time.Second))
	if s.Jumped < 0 {
		detail = fmt.Sprintf("The clock was set back by %v: what is due at an instant comes later by that much.", -s.Jumped.Round(time.Second))
	}
	return []Incident{{Cause: Clock, Severity: Warning, Since: s.JumpedAt, Detail: detail, Act: "Look at the time service of the machine (NTP). This is shown for an hour."}}
}

// incidents returns at most one: what follows from it is no cause.
func (e *Endpoint) incidents(now time.Time) []Incident {
	i := Incident{Severity: Warning, Kind: "endpoint", ID: cut(e.ID, MaxName), Name: cut(cmp.Or(e.Name, e.ID), MaxName), Owner: e.Owner}
	if !e.explain(&i, now) {
		return nil
	}
	if e.Owner == "" && e.Ready > 0 && e.Working == 0 {
		i.Severity = Critical // an endpoint of the operator does nothing
	}
	who := map[string]bool{e.Owner: true}
	maps.Copy(who, e.Users)
	i.affect(who)
	return []Incident{i}
}

func (e *Endpoint) explain(i *Incident, now time.Time) bool {
	waits := time.Duration(0)
	if !e.Oldest.IsZero() {
		waits = now.Sub(e.Oldest)
	}
	switch {
	case e.Paused:
		return false
	case e.Unborn && e.Fails > 0, e.Fails >= crashes:
		e.fails(i, now)
	case e.Throttled > 0 || e.Ready == 0:
		return false // what keeps it is the host, or nothing does
	case e.Working+e.Starting == 0 && e.Running == 0 && waits >= nobodyAfter:
		i.Cause, i.Since = NoWorker, e.Oldest
		i.Act, i.Detail = "Ask why: podyard why, or the page of the endpoint.", fmt.Sprintf("%d jobs wait, and there is no worker.", e.Ready)
	case waits >= slowAfter, e.Ready >= slowJobs:
		e.slow(i, waits)
	default:
		return false
	}
	return true
}

func (e *Endpoint) fails(i *Incident, now time.Time) {
	i.Cause, i.Since, i.Act = CrashLoop, e.FailsSince, "Read the last output, mend the image or its settings, and release it again."
	if e.Unborn {
		i.Cause, i.Act = Image, "Correct the name of the image, its command or the credential of its registry."
	}
	i.Detail = e.Why
	if left := e.Next.Sub(now).Round(time.Second); left > 0 {
		i.Detail = cut(e.Why, MaxDetail-30) + fmt.Sprintf("; next try in %v", left)
	}
	i.Detail = cut(i.Detail, MaxDetail)
}

func (e *Endpoint) slow(i *Incident, waits time.Duration) {
	i.Cause, i.Since, i.Act = SlowQueue, e.Oldest, "Raise the maximum of its workers, or limit jobs per user."
	i.Detail = fmt.Sprintf("%d jobs wait, the oldest for %v, and %d workers work.", e.Ready, waits.Round(time.Second), e.Working)
	if e.Most != "" {
		i.Detail += " Most are of " + cut(e.Most, MaxName) + "."
	}
}

// full is one incident for all that wait for room.
func (s *Survey) full() []Incident {
	i := Incident{Cause: HostFull, Severity: Warning, Act: "Stop what holds the room, or add a host."}
	users, waiting := map[string]bool{}, 0
	for _, e := range s.Endpoints {
		if e.Throttled > 0 && !e.Paused && (e.Fails < crashes || e.Working > 0) {
			waiting += e.Throttled
			users[e.Owner] = true
			maps.Copy(users, e.Users)
		}
	}
	if waiting+s.PodsWaiting == 0 {
		return nil
	}
	i.affect(users)
	i.Detail = fmt.Sprintf("%d workers and %d pods wait for room.", waiting, s.PodsWaiting)
	for _, h := range s.Hosts {
		if len(h.Full) > 0 && !h.Cordoned {
			i.Kind, i.ID, i.Name = "host", cut(h.ID, MaxName), cut(h.ID, MaxName)
			i.Detail += " Host " + i.ID + " has no free " + strings.Join(h.Full, ", ") + ": " + h.holders(s) + "."
			break // the first one is enough to go on with
		}
	}
	i.Detail = cut(i.Detail, MaxDetail)
	return []Incident{i}
}

// costs are notes for the users, and for the operator who may give more.
func (s *Survey) costs() (list []Incident) {
	for _, c := range s.Costs {
		name := cut(c.Owner, MaxName)
		i := Incident{Cause: CostSpent, Severity: Note, Kind: "user", ID: name, Name: name, Owner: c.Owner, Who: []string{name}, Detail: cut(c.Detail, MaxDetail)}
		i.Act = "Stop what is not needed, or ask an operator for more."
		if !c.Ends.IsZero() {
			i.Detail = cut(c.Detail, MaxDetail-60) + " That is enough until about " + c.Ends.UTC().Format("2006-01-02 15:04 UTC") + "."
		}
		if c.Spent {
			i.Act = "Wait for the next month (UTC), or ask an operator for more."
		}
		list = append(list, i)
	}
	return list
}

// holders returns who has most of a host.
func (h *Host) holders(s *Survey) string {
	type holder struct {
		text string
		n    int
	}
	var list []holder
	for id, n := range h.Workers {
		name := id
		if at := slices.IndexFunc(s.Endpoints, func(e Endpoint) bool { return e.ID == id }); at >= 0 {
			name = cmp.Or(s.Endpoints[at].Name, id)
		}
		list = append(list, holder{fmt.Sprintf("%d workers of %s", n, cut(name, MaxName)), n})
	}
	for user, n := range h.Pods {
		list = append(list, holder{fmt.Sprintf("%d pods of %s", n, cut(user, MaxName)), n})
	}
	slices.SortFunc(list, func(a, b holder) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.text, b.text)) })
	texts := []string{}
	for _, x := range list[:min(len(list), 3)] {
		texts = append(texts, x.text)
	}
	return strings.Join(texts, ", ")
}

func (s *Survey) receivers() (list []Incident) {
	by := map[string]*Incident{}
	users := map[string]map[string]bool{}
	for _, r := range s.Receivers {
		i := by[r.Host]
		if i == nil {
			i = &Incident{
				Cause: Receiver, Severity: Warning, Kind: "receiver", ID: cut(r.Host, MaxName), Name: cut(r.Host, MaxName), Owner: r.Owner, Since: r.Since,
				Act:    "Tell its owner. Webhooks are kept for an hour and sent again.",
				Detail: fmt.Sprintf("The receiver of webhooks does not answer, or refuses them: %d failures in a row.", r.Failures),
			}
			by[r.Host], users[r.Host] = i, map[string]bool{}
		}
		if r.Owner != i.Owner {
			i.Owner = "" // it fails for several
		}
		if users[r.Host][r.Owner] = true; r.Since.Before(i.Since) {
			i.Since = r.Since
		}
	}
	for host, i := range by {
		i.affect(users[host])
		list = append(list, *i)
	}
	return list
}

func (s *Survey) pods() (list []Incident) {
	by := map[string]*Incident{}
	count := map[string]int{}
	for _, p := range s.Failed {
		count[p.Owner]++
		if by[p.Owner] == nil {
			by[p.Owner] = &Incident{
				Cause: PodsFailed, Severity: Note, Kind: "user", ID: cut(p.Owner, MaxName), Name: cut(p.Owner, MaxName), Owner: p.Owner,
				Act: "Read the log of the pod.", Who: []string{cut(p.Owner, MaxName)}, Detail: cut(p.Name, MaxName) + ": " + p.Reason,
			}
		}
	}
	for owner, i := range by {
		if n := count[owner]; n > 1 {
			i.Detail = fmt.Sprintf("%d pods have failed, such as %s", n, i.Detail)
		}
		i.Detail = cut(i.Detail, MaxDetail)
		list = append(list, *i)
	}
	return list
}

package process

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/firewall"
)

// A network has the firewall rules for pods that have a user of their own: a rule knows a pod
// by its user only. All methods may be called at once.
type network struct {
	mu      sync.Mutex
	table   *firewall.Table // nil: no rules were wanted yet, or they cannot be set
	numbers []UIDRange      // all that pods may have got since Open
	stop    func()          // ends watch; nil: it does not run
}

// networkRules is the data of networkTemplate.
type networkRules struct {
	Table                    string
	Numbers                  []string // ranges
	Pairs, Marks             string   // of the users that owners have, as elements of owners and marks
	NameServers, NameServer6 []netip.Addr
	Reachable                []netip.AddrPort
	Denied, Denied6          []netip.Prefix
}

// networkTemplate is the input of nft.
//
// A rule sees the user of the sender, but not that of the receiver. So a connection to this
// machine is marked with the user that opens it, and the answer of the listener passes only
// when it comes from the same user. It is dropped otherwise, and the client is refused when it
// asks again, after a second.
var networkTemplate = firewall.Parse(`table inet {{.Table}}
delete table inet {{.Table}}
table inet {{.Table}} {
	set owners {
		typeof meta skuid . ct mark
{{- with .Pairs}}
		elements = { {{.}} }
{{- end}}
	}
	map marks {
		typeof meta skuid : ct mark
{{- with .Marks}}
		elements = { {{.}} }
{{- end}}
	}
	chain output {
		type filter hook output priority -10; policy accept;
{{- range .Numbers}}
		ct direction reply ct mark {{.}} tcp flags & (syn | ack) == (syn | ack) jump answers
{{- end}}
{{- range .Numbers}}
		meta skuid {{.}} jump pods
{{- end}}
	}
	chain answers {
		meta skuid . ct mark @owners accept
		ct mark set 0xffffffff drop
	}
	chain pods {
		ct mark 0xffffffff reject with tcp reset
		ct state established,related accept
{{- with .NameServers}}
		ip daddr { {{list .}} } meta l4proto { tcp, udp } th dport 53 accept
{{- end}}
{{- with .NameServer6}}
		ip6 daddr { {{list .}} } meta l4proto { tcp, udp } th dport 53 accept
{{- end}}
{{- range .Reachable}}
		{{if .Addr.Is4}}ip{{else}}ip6{{end}} daddr {{.Addr}} tcp dport {{.Port}} accept
{{- end}}
		oifname "lo" jump local
		ct status dnat reject with icmpx type port-unreachable
		ct original ip daddr { {{list .Denied}} } reject with icmpx type port-unreachable
		ip daddr { {{list .Denied}} } reject with icmpx type port-unreachable
		ip6 daddr { {{list .Denied6}} } reject with icmpx type port-unreachable
	}
	chain local {
		meta l4proto tcp ct mark set meta skuid map @marks accept
		reject with icmpx type port-unreachable
	}
}
`)

// metadata6 returns the IPv6 addresses where clouds serve metadata with secrets, those of
// IPv4 behind NAT64 included, and all link-local addresses.
func metadata6() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("64:ff9b::a9fe:0/112"),
		netip.MustParsePrefix("fd00:ec2::/32"), netip.MustParsePrefix("fd20:ce::254/128"),
		netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), netip.MustParsePrefix("fd00:42::42/128"),
	}
}

// CheckDeny returns an error if p cannot be an entry of Isolation.Deny.
func CheckDeny(p netip.Prefix) error {
	if !p.IsValid() {
		return errors.New("must be a block of addresses, as 10.0.0.0/8")
	}
	if p != p.Masked() {
		return fmt.Errorf("has bits after its prefix: %s is the block", p.Masked())
	}
	return nil
}

// rulesFor returns the rules that pods need now. The caller holds n.mu.
func (n *network) rulesFor(name string, o *Isolation, users []uint32) (string, error) {
	w := networkRules{Table: name}
	for _, u := range n.numbers {
		w.Numbers = append(w.Numbers, fmt.Sprintf("%d-%d", u.First, u.First+u.Count-1))
	}
	var pairs, marks []string
	for _, uid := range users {
		pairs = append(pairs, fmt.Sprintf("%d . %d", uid, uid))
		marks = append(marks, fmt.Sprintf("%d : %d", uid, uid))
	}
	w.Pairs, w.Marks = strings.Join(pairs, ", "), strings.Join(marks, ", ")
	for _, a := range firewall.NameServers() {
		if a.Is4() {
			w.NameServers = append(w.NameServers, a)
		} else {
			w.NameServer6 = append(w.NameServer6, a)
		}
	}
	for _, a := range o.Reachable {
		addr := a.Addr().Unmap().WithZone("")
		if addr.IsUnspecified() {
			addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		w.Reachable = append(w.Reachable, netip.AddrPortFrom(addr, a.Port()))
	}
	isIPv6 := func(p netip.Prefix) bool { return p.Addr().Is6() }
	isIPv4 := func(p netip.Prefix) bool { return p.Addr().Is4() }
	w.Denied = firewall.Merged(slices.DeleteFunc(slices.Concat(firewall.Metadata(), o.Deny), isIPv6))
	w.Denied6 = firewall.Merged(slices.DeleteFunc(slices.Concat(metadata6(), o.Deny), isIPv4))
	return networkTemplate.Text(w)
}

// nftTime is how long nft may take. It takes some milliseconds.
const nftTime = 10 * time.Second

// nftContext is for one use of nft, by a job of a pod or by the Runtime itself.
func nftContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), nftTime) //nolint:forbidigo // they have no caller with a context
}

// wantsRules reports whether pods are to have rules, and can have them.
func (i *isolator) wantsRules() bool {
	if i == nil || !canIsolate || i.opts.UIDs.Count == 0 {
		return false
	}
	_, lacks := i.lacks[lacksNetwork]
	return !lacks
}

// openNetwork finds out whether p can have rules. Where it cannot, they are missing.
func (r *Runtime) openNetwork(p *policy) {
	i := p.isolator
	if !i.wantsRules() {
		return
	}
	ctx, cancel := nftContext()
	defer cancel()
	if err := r.network.open(ctx, firewall.Name(string(r.root)), &i.opts); err != nil {
		i.lacks[lacksNetwork] = err.Error()
	}
}

func (n *network) open(ctx context.Context, name string, o *Isolation) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	probe, err := (&network{numbers: []UIDRange{o.UIDs}}).rulesFor(name, o, []uint32{o.UIDs.First})
	if err != nil {
		return err
	}
	table, err := firewall.Open(ctx, name, probe)
	if err == nil && n.table == nil {
		n.table = table
	}
	return err
}

// holdNetwork makes the rules be those of p. Where they can be had, no pod runs without them.
func (r *Runtime) holdNetwork(p *policy) error {
	if !p.isolator.wantsRules() {
		return nil
	}
	ctx, cancel := nftContext()
	defer cancel()
	return r.network.hold(ctx, &p.isolator.opts, &r.users)
}

func (n *network) hold(ctx context.Context, o *Isolation, u *users) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Contains(n.numbers, o.UIDs) {
		n.numbers = append(n.numbers, o.UIDs)
	}
	text, err := n.rulesFor(n.table.Name, o, u.within(n.numbers))
	if err != nil {
		return err
	}
	return n.table.Set(ctx, text)
}

// within returns the numbers on record that are in one of the ranges, sorted.
func (u *users) within(ranges []UIDRange) (list []uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, e := range u.entries {
		if slices.ContainsFunc(ranges, func(r UIDRange) bool { return r.has(e.UID) }) {
			list = append(list, e.UID)
		}
	}
	slices.Sort(list)
	return list
}

// watchNetwork sets the rules again if somebody changed or removed them, until the end of
// closeNetwork.
func (r *Runtime) watchNetwork(interval time.Duration) {
	end, done := make(chan struct{}), make(chan struct{})
	r.network.stop = func() {
		close(end)
		<-done
	}
	go func() {
		defer close(done)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.repairNetwork()
			case <-end:
				return
			}
		}
	}()
}

func (r *Runtime) repairNetwork() {
	ctx, cancel := nftContext()
	defer cancel()
	if r.network.unchanged(ctx) {
		return
	}
	r.opts.Logger.Warn("process: the firewall rules of pods were changed by somebody, and are set again")
	if err := r.holdNetwork(r.policy.Load()); err != nil {
		r.opts.Logger.Error("process: pods reach what they should not", "err", err)
	}
}

// unchanged reports whether the rules are as they were set, or there are none.
func (n *network) unchanged(ctx context.Context) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.table == nil || !n.table.Exists() || n.table.Unchanged(ctx)
}

// closeNetwork removes the rules. No pod runs any more.
func (r *Runtime) closeNetwork() {
	n := &r.network
	if n.stop != nil {
		n.stop()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.table == nil {
		return
	}
	ctx, cancel := nftContext()
	defer cancel()
	if err := n.table.Remove(ctx); err != nil {
		r.opts.Logger.Warn("process: the firewall rules of pods stay", "err", err)
	}
}

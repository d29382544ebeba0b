package docker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podyard/podyard/internal/firewall"
	"github.com/podyard/podyard/internal/podhost"
)

// rules is the data of rulesTemplate.
type rules struct {
	Table       string
	Interfaces  string // prefix of the names of our bridges
	All         string // prefix of the names of bridges of every Runtime on this machine
	Bridges     []ruledBridge
	NameServers []netip.Addr
	Reachable   []netip.AddrPort // TCP addresses of this machine that containers may reach
	Host        netip.Addr       // the address of published ports
	TCP, UDP    []int            // the published ports
	Denied      []netip.Prefix
}

// A ruledBridge is the bridge of one of our networks. Podman's name server listens at
// Gateway.
type ruledBridge struct {
	Interface string
	Gateway   netip.Addr
}

// rulesTemplate is the input of nft. It deletes the table first, so that nft replaces the
// whole table in one transaction. The priority is before the engine's rules and after
// address translation: "ct original" is the address that the container used.
var rulesTemplate = firewall.Parse(`table inet {{.Table}}
delete table inet {{.Table}}
table inet {{.Table}} {
	chain input {
		type filter hook input priority -10; policy accept;
		iifname != "{{.Interfaces}}*" accept
		ct state established,related accept
{{- range .Bridges}}
		iifname "{{.Interface}}" ip daddr {{.Gateway}} meta l4proto { tcp, udp } th dport 53 accept
{{- end}}
{{- with .NameServers}}
		ip daddr { {{list .}} } meta l4proto { tcp, udp } th dport 53 accept
{{- end}}
{{- range .Reachable}}
		ip daddr {{.Addr}} tcp dport {{.Port}} accept
{{- end}}
{{- with .TCP}}
		ip daddr {{$.Host}} tcp dport { {{list .}} } accept
{{- end}}
{{- with .UDP}}
		ip daddr {{$.Host}} udp dport { {{list .}} } accept
{{- end}}
		reject with icmpx type port-unreachable
	}
	chain forward {
		type filter hook forward priority -10; policy accept;
		iifname != "{{.Interfaces}}*" accept
		ct state established,related accept
		meta nfproto ipv6 reject with icmpx type port-unreachable
{{- range .Bridges}}
		iifname "{{.Interface}}" oifname "{{.Interface}}" accept
{{- end}}
		oifname "{{.All}}*" reject with icmpx type port-unreachable
{{- with .NameServers}}
		ip daddr { {{list .}} } meta l4proto { tcp, udp } th dport 53 accept
{{- end}}
		ct original ip daddr { {{list .Denied}} } reject with icmpx type port-unreachable
		ip daddr { {{list .Denied}} } reject with icmpx type port-unreachable
	}
}
`)

func (r *rules) text() (string, error) { return rulesTemplate.Text(r) }

// wantedRules returns the rules for the networks that exist now.
func (r *Runtime) wantedRules(ctx context.Context) (*rules, error) {
	w := &rules{
		Table: r.firewall.Name, Interfaces: r.interfacePrefix(), All: allInterfaces, NameServers: containerNameServers(), Host: r.opts.Host,
		Denied: firewall.Merged(slices.Concat(firewall.Metadata(), r.opts.Deny)),
	}
	all, err := r.engineNetworks(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range all {
		if n.ours(r) && n.gateway.IsValid() {
			w.Bridges = append(w.Bridges, ruledBridge{r.bridgeInterface(bridge{owner: n.labels[labelOwner]}), n.gateway})
		}
	}
	slices.SortFunc(w.Bridges, func(a, b ruledBridge) int { return strings.Compare(a.Interface, b.Interface) })
	for _, a := range r.opts.Reachable {
		if a.Addr().IsUnspecified() || a.Addr().IsLoopback() {
			a = netip.AddrPortFrom(r.gateway, a.Port())
		}
		if a.Addr().Is4() {
			w.Reachable = append(w.Reachable, a)
		}
	}
	w.addPublished(r.ports.Taken())
	return w, nil
}

// addPublished lets containers reach the published ports of pods.
func (r *rules) addPublished(ports []podhost.Port) {
	if !r.Host.Is4() || r.Host.IsLoopback() || r.Host.IsUnspecified() {
		return
	}
	for _, p := range ports {
		if p.UDP {
			r.UDP = append(r.UDP, p.Public)
		} else {
			r.TCP = append(r.TCP, p.Public)
		}
	}
	slices.Sort(r.TCP)
	slices.Sort(r.UDP)
}

// containerNameServers returns the name servers that the engine asks for containers. Only the
// engine can reach those on loopback.
func containerNameServers() []netip.Addr {
	return slices.DeleteFunc(firewall.NameServers(), func(a netip.Addr) bool { return !a.Is4() || a.IsLoopback() })
}

// holdRules makes the table match the networks that exist. It sets the rules if they must
// change, or if somebody changed or removed them.
func (r *Runtime) holdRules(ctx context.Context) error {
	done, err := r.networks.acquire(ctx)
	if err != nil {
		return err
	}
	defer done()
	return r.holdRulesLocked(ctx)
}

// holdRulesLocked is holdRules for the holder of networkTable.acquire.
func (r *Runtime) holdRulesLocked(ctx context.Context) error {
	if r.firewall == nil {
		return nil
	}
	w, err := r.wantedRules(ctx)
	if err != nil {
		return err
	}
	if len(w.Bridges) == 0 {
		return r.firewall.Remove(ctx)
	}
	text, err := w.text()
	if err == nil {
		err = r.firewall.Set(ctx, text)
	}
	if err != nil {
		return fmt.Errorf("the firewall of containers: %w", err)
	}
	return nil
}

// watchRules sets the rules again if somebody changed or removed them.
func (r *Runtime) watchRules(ctx context.Context) {
	tick := time.NewTicker(min(firewall.RepairInterval, r.opts.Resync))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.repairRules(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (r *Runtime) repairRules(ctx context.Context) {
	done, err := r.networks.acquire(ctx)
	if err != nil {
		return
	}
	defer done()
	if !r.firewall.Exists() || r.firewall.Unchanged(ctx) || ctx.Err() != nil {
		return
	}
	r.opts.Logger.Warn("docker: the firewall rules of containers were changed by somebody, and are set again")
	if err := r.holdRulesLocked(ctx); err != nil && ctx.Err() == nil {
		r.opts.Logger.Error("docker: containers reach what they should not", "err", err)
	}
}

// openFirewall checks whether rules can be set. The error says why not.
func (r *Runtime) openFirewall(ctx context.Context) error {
	switch {
	case r.opts.Isolation == IsolationOff:
		return errors.New("the option Isolation is off")
	case !r.engine.networks:
		return errors.New("the engine has no networks for them")
	case !r.engine.local():
		return errors.New("the networks of the engine are not on this machine")
	}
	var err error
	if r.gateway, err = r.gatewayAddress(ctx); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	name := firewall.Name(r.instance)
	probe, err := (&rules{Table: name, Interfaces: r.interfacePrefix(), All: allInterfaces, Denied: firewall.Metadata()}).text()
	if err == nil {
		r.firewall, err = firewall.Open(ctx, name, probe)
	}
	return err
}

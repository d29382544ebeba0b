package docker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podyard/podyard/internal/podhost"
)

// A firewall is an nftables table with the rules for the networks of this Runtime. Neither
// the engine nor the operator has rules in this table. A packet that it rejects cannot be
// accepted by a rule of another table.
//
// Only the holder of networkTable.acquire may use it.
type firewall struct {
	on      bool   // rules can be set on this machine
	rules   string // as last set; empty: the table does not exist
	listing string // what nft listed after that
}

// rules is the data of rulesTemplate.
type rules struct {
	Table       string
	Interfaces  string // prefix of the names of our bridges
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
var rulesTemplate = template.Must(template.New("rules").Funcs(template.FuncMap{"list": list}).Parse(`table inet {{.Table}}
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
		oifname "{{.Interfaces}}*" reject with icmpx type port-unreachable
{{- with .NameServers}}
		ip daddr { {{list .}} } meta l4proto { tcp, udp } th dport 53 accept
{{- end}}
		ct original ip daddr { {{list .Denied}} } reject with icmpx type port-unreachable
		ip daddr { {{list .Denied}} } reject with icmpx type port-unreachable
	}
}
`))

// list formats the elements of an nft set.
func list(all any) string {
	return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(all), "[]")), ", ")
}

// metadataAddresses are where clouds serve metadata with secrets, and all link-local
// addresses.
func metadataAddresses() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("100.100.100.200/32"), netip.MustParsePrefix("168.63.129.16/32"),
		netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("192.0.0.192/32"),
	}
}

// merged drops prefixes that another prefix contains, because an nft set must have no
// overlaps. It sorts all.
func merged(all []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		return cmp.Or(cmp.Compare(a.Bits(), b.Bits()), a.Addr().Compare(b.Addr()))
	})
	for _, p := range all {
		if _, found := overlapping(p, out); !found {
			out = append(out, p)
		}
	}
	return out
}

func (r *rules) text() (string, error) {
	var b bytes.Buffer
	err := rulesTemplate.Execute(&b, r)
	return b.String(), err
}

// wantedRules returns the rules for the networks that exist now.
func (r *Runtime) wantedRules(ctx context.Context) (*rules, error) {
	w := &rules{
		Table: r.table(), Interfaces: r.interfacePrefix(), NameServers: hostNameServers(), Host: r.opts.Host,
		Denied: merged(slices.Concat(metadataAddresses(), r.opts.Deny)),
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

func (r *Runtime) table() string { return "podyard_" + shortHash(r.instance, 16) }

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
	if !r.firewall.on {
		return nil
	}
	w, err := r.wantedRules(ctx)
	if err != nil {
		return err
	}
	if len(w.Bridges) == 0 {
		return r.removeRules(ctx)
	}
	text, err := w.text()
	if err != nil {
		return err
	}
	if text == r.firewall.rules && r.rulesAreSet(ctx) {
		return nil
	}
	return r.setRules(ctx, text)
}

// rulesAreSet reports whether the table is as it was last set.
func (r *Runtime) rulesAreSet(ctx context.Context) bool {
	now, err := nft(ctx, "", "list", "table", "inet", r.table())
	return err == nil && now == r.firewall.listing
}

func (r *Runtime) setRules(ctx context.Context, text string) (err error) {
	r.firewall.rules = unknownRules
	if _, err := nft(ctx, text, "-f", "-"); err != nil {
		return fmt.Errorf("the firewall rules of containers cannot be set: %w", err)
	}
	if r.firewall.listing, err = nft(ctx, "", "list", "table", "inet", r.table()); err != nil {
		return fmt.Errorf("the firewall rules of containers cannot be read: %w", err)
	}
	r.firewall.rules = text
	return nil
}

// unknownRules marks a table of an earlier server, or one that could not be set.
const unknownRules = "unknown"

// repairInterval is how often the rules are checked.
const repairInterval = 10 * time.Second

// watchRules sets the rules again if somebody changed or removed them.
func (r *Runtime) watchRules(ctx context.Context) {
	tick := time.NewTicker(min(repairInterval, r.opts.Resync))
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
	if r.firewall.rules == "" || r.rulesAreSet(ctx) || ctx.Err() != nil {
		return
	}
	r.opts.Logger.Warn("docker: the firewall rules of containers were changed by somebody, and are set again")
	if err := r.holdRulesLocked(ctx); err != nil && ctx.Err() == nil {
		r.opts.Logger.Error("docker: containers reach what they should not", "err", err)
	}
}

func (r *Runtime) removeRules(ctx context.Context) error {
	if r.firewall.rules == "" {
		return nil
	}
	// Adding a table that exists changes nothing: the delete always has a table.
	_, err := nft(ctx, "table inet "+r.table()+"\ndelete table inet "+r.table()+"\n", "-f", "-")
	if err == nil {
		r.firewall.rules, r.firewall.listing = "", ""
	}
	return err
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
	probe, err := (&rules{Table: r.table(), Interfaces: r.interfacePrefix(), Denied: metadataAddresses()}).text()
	if err != nil {
		return err
	}
	if _, err := nft(ctx, probe, "-c", "-f", "-"); err != nil {
		return err
	}
	r.firewall = firewall{on: true, rules: unknownRules}
	return nil
}

// nft runs the program nft and returns its output.
func nft(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "nft", args...)
	cmd.Stdin = strings.NewReader(input)
	var said, wrong bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &wrong
	if err := cmd.Run(); err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(wrong.String()), "\n")
		return "", fmt.Errorf("nft: %w: %s", err, first)
	}
	return said.String(), nil
}

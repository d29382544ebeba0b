package firewall

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"text/template"
	"time"
)

// RepairInterval is how often the rules are to be checked.
const RepairInterval = 10 * time.Second

// A Template makes the input of nft for one table. "list" in it formats the elements of a set.
type Template struct{ parsed *template.Template }

// Parse returns a Template. It panics if text is none.
func Parse(text string) Template {
	return Template{template.Must(template.New("rules").Funcs(template.FuncMap{"list": list}).Parse(text))}
}

// Text returns the rules with data. For an nftables table that is there, the text must delete
// the table first, so that nft replaces the whole table in one transaction.
func (t Template) Text(data any) (string, error) {
	var b bytes.Buffer
	err := t.parsed.Execute(&b, data)
	return b.String(), err
}

// list formats the elements of an nft set.
func list(all any) string {
	return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(all), "[]")), ", ")
}

// Metadata returns the IPv4 addresses where clouds serve metadata with secrets, and all
// link-local addresses.
func Metadata() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("100.100.100.200/32"), netip.MustParsePrefix("168.63.129.16/32"),
		netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("192.0.0.192/32"),
	}
}

// Merged drops prefixes that another prefix contains, because an nft set must have no
// overlaps. It sorts all.
func Merged(all []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		return cmp.Or(cmp.Compare(a.Bits(), b.Bits()), a.Addr().Compare(b.Addr()))
	})
	for _, p := range all {
		if !slices.ContainsFunc(out, p.Overlaps) {
			out = append(out, p)
		}
	}
	return out
}
